"""One line as a change of another: what two sequences share at their head and at their tail.

>>> shared(list("abcdef"), list("abXef"))
(2, 2)
>>> shared(list("aa"), list("aaa"))      # the head is counted first; head and tail never overlap
(2, 0)
"""

from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_BLOCK = 512
"""Slices of this size are compared at once, which runs at the speed of C."""


def shared(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    """How many items stand equal at the head of both, and then at the tail."""
    most = min(len(old), len(new))
    if most < _BLOCK and old[:most] == new[:most]:  # most often one goes on where the other ends
        return most, 0
    head = _equal_head(old, new, most)
    return head, _equal_tail(old, new, most - head)


def narrowed(line: list[T], start: int, stop: int, new: list[T]) -> tuple[int, int, list[T]]:
    """The same replacement of `line[start:stop]` by `new`, beginning where the line really changes.

    >>> narrowed(list("abcd"), 0, 3, list("axc"))
    (1, 2, ['x'])
    >>> narrowed(list("aab"), 0, 1, [])          # taking out either `a` gives the same line
    (1, 2, [])
    >>> narrowed(list("ab"), 0, 0, ["a"])        # and so does putting one in before or behind it
    (1, 1, ['a'])
    """
    head, tail = shared(line[start:stop], new)
    start, stop, new = start + head, stop - tail, new[head : len(new) - tail]
    if not new:
        while start < stop < len(line) and line[start] == line[stop]:
            start, stop = start + 1, stop + 1
    elif start == stop:
        first = start
        while start < len(line) and line[start] == new[(start - first) % len(new)]:
            start += 1
        turned = (start - first) % len(new)
        stop, new = start, new[turned:] + new[:turned]
    return start, stop, new


def _equal_head(old: Sequence[Any], new: Sequence[Any], most: int) -> int:
    run = 0
    while run + _BLOCK <= most and old[run : run + _BLOCK] == new[run : run + _BLOCK]:
        run += _BLOCK
    while run < most and old[run] == new[run]:
        run += 1
    return run


def _equal_tail(old: Sequence[Any], new: Sequence[Any], most: int) -> int:
    run, a, b = 0, len(old), len(new)
    while run + _BLOCK <= most and old[a - run - _BLOCK : a - run] == new[b - run - _BLOCK : b - run]:
        run += _BLOCK
    while run < most and old[a - run - 1] == new[b - run - 1]:
        run += 1
    return run
