"""What is to be done: every row as often as asked, each task with a name that no other has.

A task is the hash of its row, its number among equal rows, and its sample: a dataset may be reordered, extended or hold
the same prompt seven times, and each task is still found again. What affects sampling is the run's recipe: another
recipe is another run, unless one says otherwise.

    rows A B A, 2 samples  →  A-0-0 A-0-1  B-0-0 B-0-1  A-1-0 A-1-1

`tests/batch/test_plan.py` proves it.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from stemma.batch.distributions import Distribution, draw
from stemma.batch.prompts import Row
from stemma.batch.record import Record, task_name
from stemma.core.canonical import canonical, decode
from stemma.formats.entries import Columns


class Task(msgspec.Struct, frozen=True):
    """One conversation to have."""

    row: Row
    ordinal: int
    """Its number among equal rows."""
    sample: int

    @property
    def name(self) -> str:
        """What its conversation is called in the store."""
        return task_name(self.row.key, self.ordinal, self.sample)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What running a batch now would do."""

    tasks: int
    kept: int
    """Tasks that have ended already."""
    failed: int
    """Tasks that failed before and are tried again."""
    interrupted: int
    """Tasks that go on where they were left."""
    columns: Columns
    """The shape of the entries' metadata."""
    tools: tuple[str, ...] = ()
    """Every tool that a task of the run is or was offered, the shipped ones first: what statistics count by name."""
    shells: bool = False
    """Whether tasks are offered commands, in the sandbox of the run."""

    @property
    def to_do(self) -> int:
        """Tasks that are left."""
        return self.tasks - self.kept

    def __str__(self) -> str:
        text = f"{self.kept:,} kept, {self.to_do:,} to do"
        text += f", {self.failed:,} failed will be retried" if self.failed else ""
        return text + (f", {self.interrupted:,} go on where they were left" if self.interrupted else "")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a dataset are meant."""

    first: int | None = None
    """Only so many."""
    start: int | None = None
    stop: int | None = None
    """Rows from `start` up to `stop`, as a slice of a list."""
    keep: Callable[[Row], bool] | None = None

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Those of the rows that are meant."""
        taken = 0
        for row in rows:
            if self.stop is not None and row.index >= self.stop:
                return
            if row.index < (self.start or 0) or (self.keep is not None and not self.keep(row)):
                continue
            if self.first is not None and taken >= self.first:
                return
            taken += 1
            yield row


def tasks(rows: Iterable[Row], samples: int) -> Iterator[Task]:
    """Every row as often as asked, in the order of the dataset."""
    seen: Counter[str] = Counter()
    for row in rows:
        for sample in range(samples):
            yield Task(row, seen[row.key], sample)
        seen[row.key] += 1


def fresh_record(task: Task, recipe: str, toolsets: Iterable[str], seed: int | None) -> Record:
    """The record with which a task begins."""
    row = task.row
    params = {} if seed is None else {"seed": task_seed(seed, task)}
    return Record(
        key=row.key,
        ordinal=task.ordinal,
        sample=task.sample,
        recipe=recipe,
        prompt_index=row.index,
        id=row.id,
        metadata=decode(canonical(row.metadata)),  # as the store will give it back, the order of keys included
        toolsets=list(toolsets),
        params=params,
    )


def task_seed(seed: int, task: Task) -> int:
    """A seed for one task: the same in every run with that seed, and another for every sample."""
    text = f"{seed}/{task.name}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1  # endpoints take 31 bits


def drawn_toolsets(distribution: Distribution, seed: int, task: Task) -> list[str]:
    """The toolsets of a row: drawn once, so that the samples of one prompt can be compared."""
    text = f"{seed}/{task.row.key}/{task.ordinal}"
    return draw(distribution, random.Random(text))
