"""How a line came to be, kept small: an undo log, and the moments in it worth returning to.

A version is not a copy. It is a place in the log of changes, and its line is the current one with all later
changes undone, so a thousand edits of a thousand messages cost a thousand changes, not a million messages.

    line  S U A     edit U → U'    change(1, removed=[U], added=1)   kept: (log 0, index 1)
    line  S U' A    append V       (appends are undone by cutting to the length the next change found)
    line  S U' A V                 version 0 = cut to 3, put U back at 1 = S U A
"""

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple

import msgspec

from stemma.core.message import Message
from stemma.core.splice import shared


class Change(NamedTuple):
    """`line[start : start + added]` took the place of `removed`."""

    start: int
    removed: tuple[Message, ...]
    added: int
    length: int
    """Of the line right after this change."""


class Kept(msgspec.Struct, frozen=True):
    """A superseded line: where in the log it stood, and what took its place."""

    at: int
    """How many changes came before it."""
    length: int
    """How many messages it had."""
    index: int
    """The first message that was changed."""
    reason: str
    """edit, compaction, resample, repair, or the user's own word."""
    replaced: int
    """How many messages, from `index` on, were taken out."""
    replacement: tuple[Message, ...]
    """The messages put in their place."""
    calls: tuple[int, ...]
    """Numbers of the recorded calls whose replies left the current line with it."""


class History:
    """The changes and versions of one graph; grows, never shrinks."""

    __slots__ = ("changes", "kept")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.kept: list[Kept] = []

    def copy(self) -> "History":
        """An independent history with the same past."""
        other = History()
        other.changes, other.kept = self.changes.copy(), self.kept.copy()
        return other

    def line_at(self, current: list[Message], at: int, length: int) -> list[Message]:
        """The line as it stood before change `at`, when it had `length` messages."""
        line = current.copy()
        _undo(self.changes[at:], line)
        del line[length:]
        return line

    def newest_first(self, current: list[Message], down_to: int = 0) -> Iterator[tuple[int, Kept, list[Message]]]:
        """Each version from the newest down to number `down_to`, with its line, undoing each change once."""
        if len(self.kept) <= down_to:
            return
        line, done = current.copy(), len(self.changes)
        for number in range(len(self.kept) - 1, down_to - 1, -1):
            kept = self.kept[number]
            _undo(self.changes[kept.at : done], line)
            del line[kept.length :]
            done = kept.at
            yield number, kept, line.copy()

    def restore(self, versions: Iterable[tuple[Kept, list[Message]]], current: list[Message]) -> None:
        """Take up versions read from a store, oldest first, with their lines; `current` is the line live now."""
        live = (Kept(0, len(current), 0, "", 0, (), ()), current)
        for (version, old), (_, new) in pairwise(chain(versions, [live])):
            head, tail = shared(old, new)
            removed, added = tuple(old[head : len(old) - tail]), len(new) - head - tail
            self.kept.append(msgspec.structs.replace(version, at=len(self.changes)))
            self.changes.append(Change(head, removed, added, len(new)))


def _undo(changes: list[Change], line: list[Message]) -> None:
    for change in reversed(changes):
        del line[change.length :]
        line[change.start : change.start + change.added] = change.removed
