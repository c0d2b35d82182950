"""A part of many rows, chosen in one pass and the same for the same seed.

Each row is taken with the chance that as many as are still wanted stand among those that are left, so exactly as many
are taken as were wanted.

>>> list(Sample(30, seed=1).of(range(10), 10))
[5, 7, 8]
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Sample(msgspec.Struct, frozen=True):
    """How large a part, and which one."""

    percent: float = 100.0
    seed: int = 42

    def size(self, rows: int) -> int:
        """How many of so many rows; of some, at least one."""
        return rows if self.percent >= 100 else max(1, round(rows * self.percent / 100)) if rows else 0

    def of(self, rows: Iterable[T], count: int, salt: object = "") -> Iterator[T]:
        """The sample of `count` rows; `salt` tells apart files that are sampled with one seed."""
        wanted, left, dice = self.size(count), count, Random(f"{self.seed} {salt}")
        for row in rows:
            if dice.random() * left < wanted:
                wanted -= 1
                yield row
            left -= 1
