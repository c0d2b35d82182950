"""Rows of a file in whatever form datasets come: JSON lines, JSON, CSV, Parquet, a saved Hugging Face dataset.

One row at a time, so that a file of any size costs no memory. `tests/batch/test_tables.py` proves it.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stemma.errors import MissingExtra, StemmaError
from stemma.formats.files import load_trajectories

_JSON = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json")


class BadTable(StemmaError):
    """A file that holds no rows we can read."""


def read_table(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file or folder; a path that is not there is told at once."""
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise BadTable(f"there is no file {path}")
    return _file(path)


def _file(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".csv":
        return _csv(path)
    if path.suffix == ".parquet":
        return _parquet([path])
    if path.name.endswith(_JSON):
        return load_trajectories(path, unique_keys=True)
    raise BadTable(f"{path}: rows are read from .jsonl (.gz, .zst), .json, .csv, .parquet or a dataset folder")


def _folder(path: Path) -> Iterator[dict[str, Any]]:
    """A dataset saved by `save_to_disk`, or a folder of Parquet or JSON files."""
    if (path / "dataset_dict.json").exists():
        splits = ", ".join(sorted(one.name for one in path.iterdir() if one.is_dir()))
        raise BadTable(f"{path} holds several splits ({splits}); name one of them, such as {path / 'train'}")
    if arrow := sorted(path.glob("*.arrow")):
        return _arrow(arrow)
    if parquet := sorted(path.rglob("*.parquet")):
        return _parquet(parquet)
    return load_trajectories(path, unique_keys=True)


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        _check_columns(path, reader.fieldnames or ())
        for number, row in enumerate(reader, start=1):
            if None in row or None in row.values():
                raise BadTable(f"{path}, row {number}: it has another number of fields than the head")
            yield dict(row)


def _parquet(paths: list[Path]) -> Iterator[dict[str, Any]]:
    reader = _pyarrow("parquet")
    for path in paths:
        with reader.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=256):
                yield from map(_without_nulls, batch.to_pylist())


def _arrow(paths: list[Path]) -> Iterator[dict[str, Any]]:
    reader = _pyarrow("ipc")
    for path in paths:
        with path.open("rb") as file, reader.open_stream(file) as stream:
            _check_columns(path, stream.schema.names)
            for batch in stream:
                yield from map(_without_nulls, batch.to_pylist())


def _check_columns(path: Path, names: Sequence[str]) -> None:
    """`BadTable` if two columns have one name: a row could hold only one of them."""
    for name, number in Counter(names).items():
        if number > 1:
            raise BadTable(f"{path}: the column {name!r} is there {number} times")


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Columns that this row has; a table fills the others with nulls."""
    return {name: value for name, value in row.items() if value is not None}


def _pyarrow(part: str) -> Any:
    try:
        from importlib import import_module

        return import_module(f"pyarrow.{part}")
    except ImportError as problem:
        raise MissingExtra("reading Parquet needs pyarrow: pip install 'stemmata[columns]'") from problem
