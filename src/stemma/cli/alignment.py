"""What two sequences have in common, in order: messages of two lines, or words of two texts.

Equal heads and tails are set aside first. What lies between is compared by `difflib`; where it is too long for that,
items that stand once on either side hold the two together, and only what lies between such items is compared.
So two lines of 100,000 messages take seconds, whatever was done to them. `tests/cli/test_alignment.py` proves it.

>>> [(*step,) for step in align("abcXf", "abcYYf")]
[(True, range(0, 3), range(0, 3)), (False, range(3, 4), range(3, 5)), (True, range(4, 5), range(5, 6))]
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

from stemma.core.splice import shared

_SMALL = 250_000
"""Where the product of two lengths is less, `difflib` is fast enough."""

_Block = tuple[int, int, int]
"""Where equal items begin in the one and in the other, and how many they are."""


class Step(NamedTuple):
    """Items that are equal, or those that take each other's place."""

    same: bool
    a: range
    b: range


def align(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[Step]:
    """The steps that lead from `a` to `b`; equal and unequal ones take turns."""
    i = j = run = 0
    for start_a, start_b, size in _blocks(a, b):
        if (start_a, start_b) == (i + run, j + run):
            run += size
            continue
        if run:
            yield Step(True, range(i, i + run), range(j, j + run))
        yield Step(False, range(i + run, start_a), range(j + run, start_b))
        i, j, run = start_a, start_b, size
    if run:
        yield Step(True, range(i, i + run), range(j, j + run))


def equal_run(a: Sequence[object], i: int, b: Sequence[object], j: int) -> int:
    """How many items stand equal in `a` from `i` on and in `b` from `j` on; compared in slices, at the speed of C.

    >>> equal_run("xabcd", 1, "abce", 0)
    3
    >>> equal_run("abc", 5, "abc", 0)
    0
    """
    run, size, growing = 0, 64, True
    most = max(min(len(a) - i, len(b) - j), 0)
    while size:
        size = min(size, most - run)
        if size and a[i + run : i + run + size] == b[j + run : j + run + size]:
            run += size
            size *= 2 if growing else 1
        else:
            size, growing = size // 2, False
    return run


def _blocks(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[_Block]:
    """Everything that is equal, in order; last an empty block at the end of both."""
    head, tail = shared(a, b)
    end_a, end_b = len(a) - tail, len(b) - tail
    yield 0, 0, head
    if (end_a - head) * (end_b - head) <= _SMALL:
        yield from _compared(a, b, range(head, end_a), range(head, end_b))
    else:
        anchors = [(head - 1, head - 1), *_anchors(a, b, range(head, end_a), range(head, end_b)), (end_a, end_b)]
        for (i, j), (next_i, next_j) in pairwise(anchors):
            yield from _compared(a, b, range(i + 1, next_i), range(j + 1, next_j))
            yield next_i, next_j, int(next_i < end_a)
    yield end_a, end_b, tail
    yield len(a), len(b), 0


def _compared(a: Sequence[Hashable], b: Sequence[Hashable], in_a: range, in_b: range) -> Iterator[_Block]:
    if len(in_a) * len(in_b) <= _SMALL:
        matcher = SequenceMatcher(None, a[in_a.start : in_a.stop], b[in_b.start : in_b.stop])
        yield from ((in_a.start + i, in_b.start + j, size) for i, j, size in matcher.get_matching_blocks() if size)


def _anchors(a: Sequence[Hashable], b: Sequence[Hashable], in_a: range, in_b: range) -> list[tuple[int, int]]:
    """The most items that stand once on either side and in the same order."""
    once_a, once_b = _once(a, in_a), _once(b, in_b)
    pairs = [(i, once_b[item]) for item, i in once_a.items() if item in once_b]
    return _longest_rising(pairs)


def _once(items: Sequence[Hashable], where: range) -> dict[Hashable, int]:
    counts = Counter(items[where.start : where.stop])
    return {items[i]: i for i in where if counts[items[i]] == 1}


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of pairs, which rise in the first, that rises in the second too (patience sorting)."""
    tops: list[int] = []
    piles: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        pile = bisect_left(tops, j)
        before.append(piles[pile - 1] if pile else -1)
        tops[pile : pile + 1], piles[pile : pile + 1] = [j], [number]
    found, at = [], piles[-1] if piles else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]
