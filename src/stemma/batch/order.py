"""What a run is asked to do, and what it gives back as its tasks come to their ends."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stemma.batch.budget import Budget
from stemma.batch.outfit import Outfitter
from stemma.batch.plan import Task
from stemma.batch.record import Record
from stemma.batch.rewards import Reward
from stemma.core.graph import MessageGraph


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is asked to do."""

    name: str
    folder: Path
    recipe: str
    outfitter: Outfitter
    tasks: Callable[[], Iterator[Task]]
    """All tasks, anew each time it is called."""
    seed: int | None = None
    concurrency: int | None = None
    """How many at once; None: as many as the endpoint bears."""
    budget: Budget = Budget()
    reward: Reward | None = None
    retry_failed: bool = True
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic


class Ended(msgspec.Struct, frozen=True):
    """What there is to tell of a task that was brought to its end, for now."""

    record: Record
    before: Record
    """As it was when it was begun or taken up."""
    line: bytes | None
    """Its entry in the files, if it is to have one."""


class Result(msgspec.Struct, frozen=True):
    """A task that was brought to its end, for now."""

    record: Record
    load: Callable[[], MessageGraph]

    @property
    def graph(self) -> MessageGraph:
        """The conversation."""
        return self.load()

    @property
    def answer(self) -> str | None:
        """The last answer, if there is one."""
        return str(self.graph[-1].get("content") or "") if self.record.status == "completed" else None
