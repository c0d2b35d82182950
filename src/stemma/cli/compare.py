"""Two lines, message by message: what is common, what was changed, taken out, put in.

Messages are aligned by their ids. Where others stand in the place of some, those of the same role are paired, in
order, as the same message changed. `tests/cli/test_diff.py` proves it.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from stemma.cli.alignment import Step, align
from stemma.core.message import Message


class Difference(NamedTuple):
    """A stretch of two lines that is common, or a message of either, or one of each that belong together."""

    kind: Literal["same", "changed", "removed", "added"]
    a: range
    """Where in the first line."""
    b: range
    """Where in the second line."""


def compare(a: list[Message], b: list[Message]) -> Iterator[Difference]:
    """The differences from the first message to the last."""
    for step in align([m.id for m in a], [m.id for m in b]):
        if step.same:
            yield Difference("same", step.a, step.b)
        else:
            yield from _replaced(a, b, step)


def _replaced(a: list[Message], b: list[Message], step: Step) -> Iterator[Difference]:
    """Messages that took each other's place, paired by role."""
    roles_a = [a[i].role for i in step.a]
    roles_b = [b[j].role for j in step.b]
    for same, in_a, in_b in align(roles_a, roles_b):
        here, there = step.a[in_a.start : in_a.stop], step.b[in_b.start : in_b.stop]
        if same:
            pairs = zip(here, there, strict=True)
            yield from (Difference("changed", range(i, i + 1), range(j, j + 1)) for i, j in pairs)
        else:
            yield from (Difference("removed", range(i, i + 1), there[:0]) for i in here)
            yield from (Difference("added", here[len(here) :], range(j, j + 1)) for j in there)
