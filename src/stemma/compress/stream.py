"""Rows through counting and compression, many at once, and out again in the order they came.

Batches of rows are counted side by side (`num_workers`), rows that need it are summarised side by side, and a row
leaves as soon as all before it have left. What is under way is bounded in rows and in characters, so memory is too.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from stemma.compress.apply import Compressed, Compressor
from stemma.compress.counting import Counter
from stemma.compress.passes import Counted
from stemma.compress.plan import Turn
from stemma.compress.settings import Processing
from stemma.compress.summary import Summarizer
from stemma.compress.turns import Item, turns_of

_BATCH_CHARS = 1 << 18
_BATCH_ROWS = 64
_WAITING_CHARS = 8 << 20

T = TypeVar("T")


class Job(msgspec.Struct, Generic[T], frozen=True):
    """A conversation on its way, with whatever its owner wants to find again."""

    items: list[Item]
    turns: list[Turn]
    beside: str
    """Text that is part of the context and of no turn."""
    owner: T

    @property
    def chars(self) -> int:
        return sum(len(turn.text) for turn in self.turns)


def job(items: list[Item], owner: T, beside: str = "") -> Job[T]:
    """A conversation as a job."""
    return Job(items, turns_of(items), beside, owner)


async def counted(jobs: Sequence[Job[T]], counter: Counter) -> list[Counted]:
    """The jobs with their tokens, all texts of all of them counted at once."""
    sizes = iter(await counter.count([text for one in jobs for text in (*(t.text for t in one.turns), one.beside)]))
    found = []
    for one in jobs:
        frames = await counter.frames([turn.role for turn in one.turns])
        tokens = [next(sizes) + frame for frame in frames]
        found.append(Counted(items=one.items, turns=one.turns, tokens=tokens, beside=next(sizes)))
    return found


async def counting(
    jobs: Iterable[Job[T]], counter: Counter, workers: int
) -> AsyncIterator[list[tuple[Job[T], Counted]]]:
    """Batches of counted jobs, in order, `workers` of them under way."""
    under_way: deque[tuple[list[Job[T]], asyncio.Task[list[Counted]]]] = deque()
    source = _batches(jobs)
    try:
        while True:
            while len(under_way) < workers and (batch := next(source, None)):
                under_way.append((batch, asyncio.create_task(counted(batch, counter))))
            if not under_way:
                return
            batch, task = under_way.popleft()
            yield list(zip(batch, await task, strict=True))
    finally:
        await _cancel([task for _, task in under_way])


def _batches(jobs: Iterable[Job[T]]) -> Iterator[list[Job[T]]]:
    batch: list[Job[T]] = []
    chars = 0
    for one in jobs:
        batch.append(one)
        chars += one.chars
        if chars >= _BATCH_CHARS or len(batch) >= _BATCH_ROWS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


async def compressing(
    jobs: Iterable[Job[T]],
    counter: Counter,
    compressor: Compressor,
    processing: Processing,
    summarizer: Callable[[T], Summarizer],
) -> AsyncIterator[tuple[T, Compressed]]:
    """Every job's owner and result, in order."""
    waiting: deque[tuple[Job[T], asyncio.Task[Compressed]]] = deque()
    least, chars = processing.max_concurrent_requests, 0
    try:
        async for batch in counting(jobs, counter, processing.num_workers):
            for one, row in batch:
                waiting.append((one, asyncio.create_task(compressor.compress(row, summarizer(one.owner)))))
                chars += one.chars
            while waiting and (waiting[0][1].done() or _too_much(len(waiting), chars, least)):
                one, task = waiting.popleft()
                chars -= one.chars
                yield one.owner, await task
        while waiting:
            one, task = waiting.popleft()
            yield one.owner, await task
    finally:
        await _cancel([task for _, task in waiting])


def _too_much(rows: int, chars: int, least: int) -> bool:
    """Whether to wait for the first row; there are always enough for as many summaries as may be asked for at once."""
    return rows > 2 * least + _BATCH_ROWS or (rows > least and chars > _WAITING_CHARS)


async def _cancel(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
