"""Preset `parquet`: the rows as they are, in columns that every reader of Parquet loads.

    id, model, timestamp, finish_reason, off_policy   text; `id` is the conversation, `tip` the node of the last message
    completed, on_policy   true or false
    reward                 a number, or null
    trained                which messages are trained: a list of whole numbers
    messages, tools, metadata   JSON text, because their shape is open; `tools` is "null" if none were offered

Open shapes are text, and no library's own metadata is written, because other ways fail as measured: objects of
different shapes do not load in `datasets` before 4.7, and files that carry its metadata do not load in versions
older than the writer. A lone surrogate is written as its JSON escape, so that no row need stay out for it.

Rows are written in groups as they come, so memory stays flat. Needs pyarrow (`pip install 'stemmata[columns]'`).
`tests/formats/test_presets_text.py` reads the files with pyarrow, `tests/trainers/trl/test_loading.py` with `datasets`.
"""

import json
from collections.abc import Mapping
from importlib import import_module
from typing import IO, Any

from stemma.core.message import as_sent
from stemma.errors import MissingExtra
from stemma.formats.export import Preset, Written
from stemma.formats.jsonl import to_line
from stemma.formats.markers import Finding, markers_in
from stemma.formats.openai import protocol_difference, raw_markers
from stemma.formats.training import TrainingRow

GROUP_ROWS = 1_000
GROUP_CHARACTERS = 8 << 20
"""A group is written when it has as many rows, or as much text."""


COLUMNS = (
    *("id", "messages", "trained", "tools", "model", "timestamp", "completed", "finish_reason"),
    *("on_policy", "off_policy", "reward", "tip", "metadata"),
)


def parquet_row(row: TrainingRow) -> list[Written]:
    """The row in flat columns."""
    reward: Any = row.metadata.get("reward")
    record = {
        "messages": _json([as_sent(message) for message in row.messages]),
        "trained": list(row.trained),
        "tools": _json(row.tools or None),
        "timestamp": _unicode(row.timestamp),
        "completed": row.completed,
        "reward": float(reward) if type(reward) in (int, float) else None,
        "tip": _unicode(row.id),
        "metadata": _json(row.metadata),
    }
    return [Written(record, row.trained, protocol_difference(row))]


def json_markers(record: Mapping[str, Any]) -> list[Finding]:
    """The control markers in messages and tools that are JSON text."""
    if not markers_in(record["messages"]) and "\\" not in record["messages"]:
        return raw_markers({"messages": [], "tools": record["tools"]})
    return raw_markers({"messages": json.loads(record["messages"]), "tools": record["tools"]})


def _json(value: Any) -> str:
    """JSON text that is valid Unicode."""
    line = to_line({"": value}).decode()
    return line[len('{"": ') : -len("}\n")]


def _unicode(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class ParquetRows:
    """A Parquet file that grows by row groups."""

    def __init__(self, file: IO[bytes]) -> None:
        self._arrow = _package("pyarrow")
        text, flag, indices = self._arrow.string(), self._arrow.bool_(), self._arrow.list_(self._arrow.int32())
        kinds = {"completed": flag, "on_policy": flag, "trained": indices, "reward": self._arrow.float64()}
        self._schema = self._arrow.schema([(name, kinds.get(name, text)) for name in COLUMNS])
        self._writer = _package("pyarrow.parquet").ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[Mapping[str, Any]] = []
        self._characters = 0

    def write(self, row: Mapping[str, Any]) -> bytes:
        row = {name: _unicode(row[name]) if isinstance(row[name], str) else row[name] for name in COLUMNS}
        self._rows.append(row)
        self._characters += len(row["messages"])
        if len(self._rows) >= GROUP_ROWS or self._characters >= GROUP_CHARACTERS:
            self._write_group()
        return to_line(row).rstrip(b"\n")

    def close(self) -> None:
        """Write what is left, and the footer without which the file cannot be read."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._characters = [], 0


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as problem:
        raise MissingExtra(f"Parquet needs the package {name}: pip install 'stemmata[columns]'") from problem


PARQUET = Preset(
    name="parquet",
    convert=parquet_row,
    suffix=".parquet",
    needs_unicode=False,
    open_sink=ParquetRows,
    markers=json_markers,
    parses_arguments=False,
    any_context=True,
)
