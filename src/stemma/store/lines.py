"""How a line lies on disk: as a change of an earlier line, in runs of message numbers.

A line is `base[:head] + added + base[-tail:]`, where `added` is runs of neighbouring message numbers. An edit of the
first of a thousand messages therefore costs one small row, and so does an append. A line too many changes away
from its last whole form is written whole again, so that reading one stays linear in its length.

    line 1   [10..14]                          m10 m11 m12 m13 m14
    line 2   base 1, head 0, tail 4, [15..15]  m15 m11 m12 m13 m14       (message 0 was edited)
    line 3   base 2, head 5, tail 0, [16..17]  m15 m11 m12 m13 m14 m16 m17

    >>> pack_runs([7, 8, 9, 3])
    [7, 3, 3, 1]
    >>> unpack_runs([7, 3, 3, 1])
    [7, 8, 9, 3]
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from stemma.core.ids import ROOT, Id, chain
from stemma.core.message import Message
from stemma.core.splice import shared
from stemma.errors import StoreDamaged
from stemma.store.writer import Transaction

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, msgspec.MsgspecError)
"""What reading a damaged record can raise: every cell may hold anything."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[int]).decode


class StoredLine(msgspec.Struct, frozen=True, eq=False):
    """A line that is on disk, with what is needed to write the next one as a change of it."""

    row: int | None
    """Its row; None for the empty line that everything begins with, which has none."""
    tip: Id
    depth: int
    messages: list[Message]
    numbers: list[int]
    """The row of each message."""


EMPTY = StoredLine(None, ROOT, 0, [], [])


def pack_runs(numbers: Iterable[int]) -> list[int]:
    """`first, count` for each run of neighbours."""
    runs: list[int] = []
    following = None
    for number in numbers:
        if number == following:
            runs[-1] += 1
        else:
            runs += (number, 1)
        following = number + 1
    return runs


def unpack_runs(runs: Sequence[int]) -> list[int]:
    """The numbers that `pack_runs` packed."""
    numbers: list[int] = []
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        numbers.extend(range(first, first + count))
    return numbers


def write_runs(numbers: Iterable[int]) -> bytes:
    """Runs as bytes."""
    return _encode(pack_runs(numbers))


def read_runs(body: bytes, newest: int) -> list[int]:
    """The numbers behind `write_runs`; a damaged run cannot reach beyond the `newest` message and fill the memory."""
    runs = _decode(body)
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        if first < 1 or count < 1 or first + count - 1 > newest:
            raise StoreDamaged("its runs lead to messages that are not there")
    return unpack_runs(runs)


def newest_message(db: sqlite3.Connection) -> int:
    """The highest row of a message."""
    newest: int = db.execute("SELECT coalesce(max(id), 0) FROM message").fetchone()[0]
    return newest


def write_messages(transaction: Transaction, messages: Sequence[tuple[Id, bytes]]) -> list[int]:
    """Keep each body that is not kept yet, given with its id; the row of each."""
    db = transaction.db
    numbers, before = transaction.numbers("message", len(messages)), db.total_changes
    rows = [(number, *message) for number, message in zip(numbers, messages, strict=True)]
    db.executemany("INSERT OR IGNORE INTO message VALUES (?, ?, ?)", rows)
    if db.total_changes - before == len(messages):
        return list(numbers)
    return [db.execute("SELECT id FROM message WHERE hash = ?", (name,)).fetchone()[0] for name, _ in messages]


def write_line(transaction: Transaction, messages: list[Message], nodes: list[Id], base: StoredLine) -> StoredLine:
    """Write a line as a change of `base`, the line that it comes after, or find that it is that line.

    A line that shares nothing with its base is written whole, and so is one too many changes away from a whole one;
    it still names its base, so that a line which a graph has left is never without one that came after it. A line that
    was edited near its beginning and has grown at its end shares little with its base at either; it is written in two
    steps, first the edit and then what was appended.
    """
    head, tail = shared(base.messages, messages)
    if head == len(messages) == len(base.messages):
        return base
    before = len(base.messages)
    if len(messages) > before > 2 * (head + tail) and sum(shared(base.messages, messages[:before])) > head + tail:
        first = write_line(transaction, messages[:before], nodes[:before], base)
        return write_line(transaction, messages, nodes, first)
    added = write_messages(transaction, [(m.id, m.body) for m in messages[head : len(messages) - tail]])
    numbers = base.numbers[:head] + added + (base.numbers[-tail:] if tail else [])
    depth = base.depth + 1
    if base.row is None or head + tail == 0 or depth > 64 + len(messages) // 16:
        head, tail, depth, added = 0, 0, 0, numbers
    tip = nodes[-1] if nodes else ROOT
    row = insert_line(transaction, (base.row, head, tail, write_runs(added), len(messages), depth, tip))
    return StoredLine(row, tip, depth, messages, numbers)


def insert_line(transaction: Transaction, values: tuple[int | bytes | None, ...]) -> int:
    """A row of `line` with all columns but its id, which is returned."""
    [row] = transaction.numbers("line", 1)
    transaction.db.execute("INSERT INTO line VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (row, *values))
    return row


def read_line(db: sqlite3.Connection, row: int, near: dict[int, list[int]], newest: int) -> list[int]:
    """The message numbers of a line; `near` holds lines read just before, which may be its base."""
    changes: list[tuple[int, int, bytes]] = []
    at: int | None = row
    while at is not None and at not in near:
        found = db.execute("SELECT base, head, tail, added FROM line WHERE id = ?", (at,)).fetchone()
        if found is None or (found[0] is not None and found[0] >= at):
            raise StoreDamaged(f"line {at} is missing or stands before its base; `stemma verify` names what is wrong")
        changes.append(found[1:])
        at = found[0] if found[1] or found[2] else None  # a line that keeps nothing of its base is whole
    numbers = [] if at is None else near[at].copy()
    for head, tail, added in reversed(changes):
        if min(head, tail) < 0 or head + tail > len(numbers):
            raise StoreDamaged(f"line {row} keeps more of its base than there is")
        numbers[head : len(numbers) - tail] = read_runs(added, newest)
    return numbers


def nodes_of(messages: list[Message], like: list[Message], known: list[Id]) -> list[Id]:
    """The nodes of a line, taking over those it shares with the line `like`, whose nodes are `known`."""
    head, _ = shared(like, messages)
    parent = known[head - 1] if head else ROOT
    return known[:head] + chain(parent, (m.id for m in messages[head:]))
