"""The batch runner's entry: a trajectory with its metadata and tool statistics, alike in shape in every row.

Trainers load such files with `load_dataset("json", …)`, which fixes each column's Arrow type by the first 10 MB and
casts the rest to it. Measured with datasets 5.2 and pyarrow 26, where the second first appears after that:

    {"a": 1} then {"a": 1, "b": 2}     fails; so do 1 then 1.5, 1 then "x", null then "x", [] then ["x"]
    "2024-01-01" then "hello"          fails: Arrow takes text that looks like a time for one
    "hello" then "2024-01-01"          loads, and the text has become "2024-01-01 00:00:00"

Hence rows made with the same `Columns` and the same known tools differ in values only, never in shape:

metadata        A column that every row has, with one scalar type and no such text, stands as it is; `columns_of`
                finds them. All others stand together, as JSON text, under the key `json`; it is there, in every
                row, if the dataset has such columns. `entry_metadata` puts a row's own columns together again.
tool_stats      Known tools in the order given, with zeros. Calls of any other name are summed under `unknown`: a
                name the model made up must add no column, and must not vanish. It stands in the conversation.
toolsets_used   `["none"]` if there were none, since an empty list has no type.

Why not otherwise: a JSON text for each value leaves its reader to guess whether "3" was a number; all metadata as
one text hides the columns that the format shows; filling up with nulls fails as measured.
`tests/formats/test_entries.py` loads 10,000 mixed rows with the real `datasets` and gets all metadata back.
Not covered: a lone surrogate in the conversation, which Arrow refuses (in metadata it is escaped twice, and loads).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec

from stemma.errors import BadRecord
from stemma.formats.jsonl import from_line, to_line

REST = "json"
"""The key of `metadata` that holds, as JSON text, what may not stand as a column."""
UNKNOWN = "unknown"
"""The name under which calls of tools that do not exist are counted."""
NO_TOOLSET = "none"

_TAKEN_FOR_A_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T][\d:Z+-]*)?")


class ToolUse(msgspec.Struct, frozen=True):
    """How often a tool was called, and how that ended; a call that got no answer is neither success nor failure."""

    count: int = 0
    success: int = 0
    failure: int = 0


class Columns(msgspec.Struct, frozen=True):
    """The shape of `metadata` in every row of a file. The default takes any metadata, all of it as JSON text."""

    plain: dict[str, type] = {}
    """Columns that every row has, each of one type: str, bool, int or float."""
    rest: bool = True
    """Whether rows may have others."""


def columns_of(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """The columns for entries whose metadata are `rows`: look at all of them before the first entry is written.

    >>> columns_of([{"level": "hard", "score": 1}, {"level": "easy", "score": None}])
    Columns(plain={'level': <class 'str'>}, rest=True)
    """
    total = 0
    kinds: dict[str, type | None] = {}
    seen: Counter[str] = Counter()
    for row in rows:
        total += 1
        seen.update(row.keys())
        for name, value in row.items():
            kind = _plain_kind(name, value)
            kinds[name] = kind if kinds.setdefault(name, kind) is kind else None
    plain = {name: kind for name, kind in kinds.items() if kind is not None and seen[name] == total}
    return Columns(plain, rest=len(plain) < len(kinds) or not plain)


def _plain_kind(name: str, value: Any) -> type | None:
    """The type of a value that may stand as a column, None for any other."""
    kind = type(value)
    plain = (
        (kind is str and _is_unicode(value) and not _TAKEN_FOR_A_TIME.fullmatch(value))
        or (kind is int and -(2**63) <= value < 2**63)
        or (kind is float and isfinite(value))
        or kind is bool
    )
    return kind if plain and name != REST and _is_unicode(name) else None


def _is_unicode(text: str) -> bool:
    """False if it holds a lone surrogate."""
    return text.isascii() or text.encode("utf-8", "replace").decode() == text


def batch_entry(
    conversations: Sequence[Mapping[str, str]],
    *,
    prompt_index: int,
    metadata: Mapping[str, Any],
    columns: Columns,
    completed: bool,
    partial: bool,
    api_calls: int,
    toolsets_used: Sequence[str],
    tools_used: Mapping[str, ToolUse],
    known_tools: Iterable[str],
) -> dict[str, Any]:
    """One row of a batch file; `BadRecord` if `metadata` does not fit `columns`."""
    uses = _by_known_tool(tools_used, known_tools)
    return {
        "prompt_index": prompt_index,
        "conversations": list(conversations),
        "metadata": shaped_metadata(metadata, columns),
        "completed": completed,
        "partial": partial,
        "api_calls": api_calls,
        "toolsets_used": list(toolsets_used) or [NO_TOOLSET],
        "tool_stats": {name: msgspec.structs.asdict(use) for name, use in uses.items()},
        "tool_error_counts": {name: use.failure for name, use in uses.items()},
    }


def _by_known_tool(used: Mapping[str, ToolUse], known: Iterable[str]) -> dict[str, ToolUse]:
    """Every known tool in order, then `UNKNOWN`; the counts add up to those of `used`."""
    uses = dict.fromkeys((*known, UNKNOWN), ToolUse())
    for name, use in used.items():
        place = name if name in uses else UNKNOWN
        so_far = uses[place]
        uses[place] = ToolUse(so_far.count + use.count, so_far.success + use.success, so_far.failure + use.failure)
    return uses


def shaped_metadata(metadata: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Metadata as it stands in a row; `entry_metadata` reads it back."""
    shaped: dict[str, Any] = {}
    for name, kind in columns.plain.items():
        if _plain_kind(name, metadata.get(name)) is not kind:
            raise BadRecord(f"metadata[{name!r}] is no plain {kind.__name__} as in all other rows; use columns_of")
        shaped[name] = metadata[name]
    rest = {name: value for name, value in metadata.items() if name not in shaped}
    if columns.rest:
        shaped[REST] = to_line(rest, "metadata").decode().rstrip("\n")
    elif rest:
        raise BadRecord(f"metadata has {', '.join(map(repr, rest))}, which no other row has; use columns_of")
    return shaped


def entry_metadata(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that `batch_entry` was given, from an entry, a line read back, or a row that `datasets` loaded."""
    metadata = dict(entry["metadata"])
    rest = metadata.get(REST)
    if not isinstance(rest, str):  # another writer's entry, or one whose columns are all plain
        return metadata
    del metadata[REST]
    return metadata | from_line(rest.encode())
