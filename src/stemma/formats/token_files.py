"""Files of token rows: JSON lines, or Parquet with real columns of numbers.

Reading gives back packed rows for the proof. From Parquet the numbers come as they lie in the file, without becoming
Python objects; every other layout is read by its preset. `tests/formats/test_token_export.py` reads what was written.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import msgspec

from stemma.core.proof import WrittenRow
from stemma.errors import BadRecord, MissingExtra
from stemma.formats.token_preset import TokenPreset

_GROUP_TOKENS = 1 << 21
"""Rows are written to Parquet in groups of about as many tokens, so that memory stays flat."""

_WIDTH = 4
_encode = msgspec.json.Encoder().encode


class TokenLines:
    """One JSON object a line. A number that is not known is null; floats come back bit for bit."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, record: Mapping[str, Any]) -> None:
        self._file.write(_encode(record) + b"\n")

    def close(self) -> None:
        """Nothing to finish."""


class TokenColumns:
    """A Parquet file that grows by row groups."""

    def __init__(self, file: IO[bytes], columns: Mapping[str, str]) -> None:
        self._arrow = _arrow("pyarrow")
        self._schema = self._arrow.schema([(name, _kind(self._arrow, kind)) for name, kind in columns.items()])
        self._writer = _arrow("pyarrow.parquet").ParquetWriter(file, self._schema, compression="zstd")
        self._records: list[Mapping[str, Any]] = []
        self._tokens = 0

    def write(self, record: Mapping[str, Any]) -> None:
        self._records.append(record)
        self._tokens += len(record["input_ids"])
        if self._tokens >= _GROUP_TOKENS:
            self._write_group()

    def close(self) -> None:
        """Write what is left, and the footer without which the file cannot be read."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._records:
            self._writer.write_table(self._arrow.Table.from_pylist(self._records, schema=self._schema))
        self._records, self._tokens = [], 0


def read_rows(path: Path, preset: TokenPreset) -> Iterator[WrittenRow]:
    """The rows of a data file, in the order written."""
    return _from_parquet(path) if path.suffix == ".parquet" else _from_lines(path, preset)


def _from_lines(path: Path, preset: TokenPreset) -> Iterator[WrittenRow]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield from preset.read(msgspec.json.decode(line))
            except (msgspec.MsgspecError, ValueError, KeyError, TypeError, IndexError) as problem:
                raise BadRecord(f"is no row of the preset {preset.name}: {problem!r}", str(path), number) from problem


def _from_parquet(path: Path) -> Iterator[WrittenRow]:
    names = ["input_ids", "labels", "logprobs"]
    try:
        for batch in _arrow("pyarrow.parquet").ParquetFile(path).iter_batches(1_000, columns=names):
            columns = [_packed(batch.column(name)) for name in names]
            yield from (WrittenRow(*row) for row in zip(*columns, strict=True))
    except _arrow("pyarrow").ArrowException as problem:
        raise BadRecord(f"is no Parquet file of token rows: {problem}", str(path)) from problem


def _packed(column: Any) -> Iterator[bytes]:
    """Each list of a column as the bytes of its numbers."""
    offsets, values = column.offsets.to_pylist(), column.values
    data = memoryview(values.buffers()[1] or b"").cast("B")[values.offset * _WIDTH :]
    return (bytes(data[start * _WIDTH : end * _WIDTH]) for start, end in pairwise(offsets))


def _kind(arrow: Any, name: str) -> Any:
    plain = {
        "int8": arrow.int8(),
        "int32": arrow.int32(),
        "float": arrow.float32(),
        "double": arrow.float64(),
        "bool": arrow.bool_(),
        "string": arrow.string(),
    }
    return arrow.list_(plain[name[5:-1]]) if name.startswith("list<") else plain[name]


def _arrow(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as problem:
        raise MissingExtra(f"Parquet needs the package {name}: pip install 'stemmata[columns]'") from problem
