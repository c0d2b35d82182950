"""An asynchronous iterator for those who cannot wait for one: a thread has an event loop of its own.

Works in a script and in a notebook, whose own loop is busy. Who leaves early stops the work. What is raised there is
raised here. `tests/batch/test_threaded.py` proves it.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterable, Iterator
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
_WAITING = 256
"""How many results may wait for their reader."""


class _Raised:
    def __init__(self, problem: BaseException) -> None:
        self.problem = problem


_END = object()


def in_a_thread(source: AsyncIterable[T]) -> Iterator[T]:
    """What `source` gives, in order."""
    box: queue.Queue[object] = queue.Queue(maxsize=_WAITING)
    loop = asyncio.new_event_loop()
    work = loop.create_task(_feed(source, box))
    thread = threading.Thread(target=_run, args=(loop, work, box), daemon=True)
    thread.start()
    try:
        while (item := box.get()) is not _END:
            if isinstance(item, _Raised):
                raise item.problem
            yield item  # type: ignore[misc]
    finally:
        if thread.is_alive():
            with suppress(RuntimeError):  # its loop has ended on its own just now
                loop.call_soon_threadsafe(work.cancel)
            while thread.is_alive():  # make room for what it still wants to hand over
                _empty(box)
                thread.join(0.01)


async def _feed(source: AsyncIterable[T], box: "queue.Queue[object]") -> None:
    async for item in source:
        await asyncio.to_thread(box.put, item)


def _run(loop: asyncio.AbstractEventLoop, work: "asyncio.Task[None]", box: "queue.Queue[object]") -> None:
    try:
        loop.run_until_complete(work)
        box.put(_END)
    except asyncio.CancelledError:
        box.put(_END)
    except BaseException as problem:  # noqa: BLE001  it rises where the results are read
        box.put(_Raised(problem))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _empty(box: "queue.Queue[object]") -> None:
    while not box.empty():
        box.get_nowait()
