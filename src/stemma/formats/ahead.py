"""Work on a stream that another process does ahead, so that reading a file and storing it use two processors.

Results come in the order of the stream. The other process is a few batches ahead of the caller and no more, so memory
stays flat. A short stream is worked on right here, since it takes less time than to start a process; so is all of it
where there is but one processor, and so is whatever the other process left undone, should somebody kill it. It ends
with the process that called it, also if that is killed. `tests/formats/test_ahead.py` proves it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

Batch = TypeVar("Batch")
Result = TypeVar("Result")

SHORT = 8
"""How many batches a short stream has at most."""
AHEAD = 16
"""How many batches are under way: enough work for as long as the caller takes to store a group of them."""


def ahead(work: Callable[[Batch], Result], batches: Iterable[Batch]) -> Iterator[tuple[Batch, Result]]:
    """Each batch with what `work` makes of it; a function that can be named, and results that can be pickled."""
    stream = iter(batches)
    for batch in islice(stream, SHORT if (os.cpu_count() or 1) > 1 else None):
        yield batch, work(batch)
    for batch in stream:
        yield from _by_another_process(work, chain([batch], stream))


def _by_another_process(work: Callable[[Batch], Result], batches: Iterable[Batch]) -> Iterator[tuple[Batch, Result]]:
    started: deque[tuple[Batch, Future[Result] | None]] = deque()
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent)
    try:
        for batch in batches:
            started.append((batch, _start(pool, work, batch)))
            if len(started) > AHEAD:
                yield _finish(work, *started.popleft())
        while started:
            yield _finish(work, *started.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In the other process: who is killed cannot tell it to end, and it would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def _start(pool: ProcessPoolExecutor, work: Callable[[Batch], Result], batch: Batch) -> "Future[Result] | None":
    with suppress(BrokenProcessPool):
        return pool.submit(work, batch)
    return None


def _finish(work: Callable[[Batch], Result], batch: Batch, started: "Future[Result] | None") -> tuple[Batch, Result]:
    with suppress(BrokenProcessPool):
        if started is not None:
            return batch, started.result()
    return batch, work(batch)
