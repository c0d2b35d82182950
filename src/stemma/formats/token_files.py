"""Files of token rows: JSON lines, or Parquet with real columns of numbers.

Reading gives back packed rows for the proof, with all that the file says of them. From Parquet the tokens come as they
lie in the file, without becoming Python objects; every other layout is read by its preset, and each line is hashed.
`tests/formats/test_token_export.py` reads what was written.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from stemma.core.proof import WrittenRow
from stemma.errors import BadRecord, MissingExtra, StemmaError
from stemma.formats.token_preset import TokenPreset

_GROUP_TOKENS = 1 << 21
"""Rows are written to Parquet in groups of about as many tokens, so that memory stays flat."""

_WIDTH = 4
_encode = msgspec.json.Encoder().encode


class TokenSink(Protocol):
    """Where records of token rows go."""

    def write(self, record: Mapping[str, Any]) -> str | None:
        """Write one more record; the hash of its line, if it is one."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...


class TokenLines:
    """One JSON object a line. A number that is not known is null; floats come back bit for bit."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, record: Mapping[str, Any]) -> str | None:
        line = _encode(record)
        self._file.write(line + b"\n")
        return sha256(line).hexdigest()

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

    def write(self, record: Mapping[str, Any]) -> str | None:
        self._records.append(record)
        self._tokens += len(record["input_ids"])
        if self._tokens >= _GROUP_TOKENS:
            self._write_group()
        return None

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
    if path.suffix == ".parquet" and preset.columns is not None:
        return _from_parquet(path, preset.columns)
    return _from_lines(path, preset)


def _from_lines(path: Path, preset: TokenPreset) -> Iterator[WrittenRow]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            digest = sha256(line.removesuffix(b"\n")).hexdigest()
            try:
                rows = preset.read(msgspec.json.decode(line))
            except _UNREADABLE as problem:
                raise BadRecord(
                    f"is no row of the preset {preset.name}: {problem!r:.200}", str(path), number
                ) from problem
            yield from (msgspec.structs.replace(row, record=digest) for row in rows)


_UNREADABLE = (
    *(msgspec.MsgspecError, ValueError, KeyError, TypeError, IndexError, AttributeError),
    *(OverflowError, RecursionError, StemmaError),
)
"""What reading a line that is no record may raise."""

_TOKEN_COLUMNS = {"input_ids": 4, "labels": 4, "logprobs": 4, "attention_mask": 1}
"""Columns of numbers, one for each token, and the bytes of each number."""


def _from_parquet(path: Path, columns: Mapping[str, str]) -> Iterator[WrittenRow]:
    arrow = _arrow("pyarrow")
    try:
        with _arrow("pyarrow.parquet").ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow, {name: _kind(arrow, kind) for name, kind in columns.items()})
            for batch in file.iter_batches(1_000):
                yield from _from_batch(batch, [name for name in columns if name not in _TOKEN_COLUMNS])
    except BadRecord:
        raise
    except (arrow.ArrowException, OSError, ValueError) as problem:
        raise BadRecord(f"is no Parquet file of token rows: {problem}", str(path)) from problem


def _check_columns(path: Path, found: Any, wanted: dict[str, Any]) -> None:
    """That a file has the columns it was written with, and no others: numbers are read as they lie."""
    types = {field.name: field.type for field in found}
    for name in types.keys() | wanted.keys():
        if name not in types or name not in wanted:
            raise BadRecord(f"has {'no' if name in wanted else 'an unknown'} column {name!r}", str(path))
        if not types[name].equals(wanted[name]):
            raise BadRecord(f"has the type {types[name]} in its column {name!r}, not {wanted[name]}", str(path))


def _from_batch(batch: Any, about: list[str]) -> Iterator[WrittenRow]:
    tokens = [_packed(batch.column(name), width) for name, width in _TOKEN_COLUMNS.items()]
    nulls = any(batch.column(name).null_count or batch.column(name).flatten().null_count for name in _TOKEN_COLUMNS)
    missing = ("a number is missing in a column of tokens",) if nulls else ()
    facts = batch.select(about).to_pylist()
    for ids, labels, logprobs, seen, known in zip(*tokens, facts, strict=True):
        hidden = () if seen == b"\1" * (len(ids) // _WIDTH) else ("its attention_mask hides tokens",)
        yield WrittenRow(ids, labels, logprobs, known, (*missing, *hidden))


def _packed(column: Any, width: int) -> Iterator[bytes]:
    """Each list of a column as the bytes of its numbers."""
    offsets, values = column.offsets.to_pylist(), column.values
    data = memoryview(values.buffers()[1] or b"").cast("B")[values.offset * width :]
    return (bytes(data[start * width : end * width]) for start, end in pairwise(offsets))


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
