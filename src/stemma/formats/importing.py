"""A line of a dataset file as a graph: what `stemma import` keeps.

A reply that the line trains (`formats.reading`) is recorded as sampled by the model the line names (`imported` if it
names none), and the call says that it was imported: its context is what the file says, which nobody can vouch for. Any
other reply is a message like those of the user. What else the call keeps of the line:

    extra["on_policy"]       False if the line says that its replies were sampled in another context
    finish_reason            of the last trained reply, as the line says it
    extra["timestamp"]       of the last trained reply: the line's own text
    extra["completed"]       of the last trained reply, if the line says something else than its text shows

The line itself is kept, byte for byte, in the graph's metadata. The name of the graph is made of the file's and the
line's content, so importing a file again finds every line there already. `tests/formats/test_importing.py` proves it.

It is done in two steps. `read_line` parses and hashes, knows no other line, and may run in another process;
`Importer` gives each line its name, in the order of the file.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from secrets import token_bytes
from typing import Any

import msgspec

from stemma.core.fresh import Fresh, lay_out
from stemma.core.message import Message
from stemma.errors import BadCall, BadMessage, BadRecord
from stemma.formats.jsonl import from_line
from stemma.formats.reading import Kind, read_entry
from stemma.formats.training import RESERVED, calls_of_entry


class ReadLine(msgspec.Struct, frozen=True):
    """What a line says."""

    content: str
    """The beginning of its hash."""
    conversation: Fresh
    columns: dict[str, Any]
    """What the dataset says beside the conversation."""


class Imported(msgspec.Struct, frozen=True):
    """A conversation ready to be saved."""

    name: str
    conversation: Fresh
    metadata: dict[str, Any]
    size: int
    """How many bytes its line has."""


def read_numbered(lines: Iterable[tuple[int, bytes | None]], kind: Kind | None = None) -> list[ReadLine | BadRecord]:
    """What each line says, or what is wrong with it; None stands for one that is too long."""
    return [_read_or_problem(line, kind) for _, line in lines]


def _read_or_problem(line: bytes | None, kind: Kind | None) -> ReadLine | BadRecord:
    try:
        return read_line(line, kind)
    except BadRecord as problem:
        return problem


def read_line(raw: bytes | None, kind: Kind | None = None) -> ReadLine:
    """What a line says, or `BadRecord`."""
    if raw is None:
        raise BadRecord("is too long")
    entry = read_entry(from_line(raw), kind)
    try:
        messages = [Message.with_id(message) for message in entry.messages]
        call, last = calls_of_entry(entry)
    except (BadMessage, BadCall) as problem:
        raise BadRecord(str(problem)) from problem
    conversation = lay_out(messages, entry.trained, call, lambda: token_bytes(12), last)
    return ReadLine(sha256(raw).hexdigest()[:16], conversation, entry.columns)


class Importer:
    """Gives each line of one file its graph and name."""

    def __init__(self, stem: str) -> None:
        self._stem = stem
        self._seen: Counter[str] = Counter()

    def named(self, read: ReadLine, raw: bytes, line: int) -> Imported:
        """What was read from `raw`, which stands at `line`, under its name."""
        self._seen[read.content] += 1
        ordinal = self._seen[read.content]
        name = f"{self._stem}/{read.content}" + (f"-{ordinal}" if ordinal > 1 else "")
        origin = {"file": self._stem, "line": line, "raw": raw.decode("utf-8", "surrogatepass")}
        about = {**read.columns, RESERVED: {"imported": origin}}
        return Imported(name, read.conversation, about, len(raw))
