"""A helper of a run: the same tasks in another process, until none is free, the chief says so, or the chief is gone.

It has a model client, tools and a store of its own, and writes no file but the store: what the files need it tells the
chief. `tests/batch/test_helpers.py` and `tests/crash/test_batch_helpers.py` prove it.
"""

import asyncio
import socket
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing

import msgspec

from stemma.batch.budget import Budget
from stemma.batch.gate import bounded
from stemma.batch.line import Begin, Cancel, Done, Failed, Line, Room, Stop
from stemma.batch.needs import fitted_pace
from stemma.batch.order import Order
from stemma.batch.outputs import shape_of
from stemma.batch.progress import Doing, Elsewhere, Progress
from stemma.batch.runner import Runner, first_pace
from stemma.errors import StemmaError
from stemma.store import open_store

TELLS_EVERY = 0.25
"""Seconds between two words on what our tasks are doing."""
_SLOWEST, _CHARACTERS = 8, 200

Orders = Callable[[str], AbstractAsyncContextManager[Order]]
"""The order of a run of that name, with all that is needed to do it."""


def help_out(orders: Orders, end: socket.socket) -> None:
    """All that a helper does, from its first word to its last."""
    asyncio.run(_help(orders, end))


async def _help(orders: Orders, end: socket.socket) -> None:
    line = await Line.over(end)
    begin = await line.hear()
    if isinstance(begin, Begin):
        try:
            async with orders(begin.name) as order:
                await _work(order, begin, line)
            line.say(Done())
        except Exception as problem:  # noqa: BLE001  it rises in the chief
            line.say(Failed(_portable(problem)))
    await line.close()


async def _work(order: Order, begin: Begin, line: Line) -> None:
    """Run what is free; the chief alone counts what the run may use."""
    order = msgspec.structs.replace(order, budget=Budget())
    progress = Progress(order.clock)
    with open_store(order.folder / "stemma.db", create=False) as store:
        shape = shape_of(next(run.metadata for run in store.runs() if run.name == order.name))
        fitted_pace(first_pace(order.concurrency), shells=True)  # the chief says how many; this raises our own limit
        runner = Runner(order, store, shape, progress, line.say, pace=begin.pace, since=begin.since)
        beside = [asyncio.ensure_future(_listen(line, runner)), asyncio.ensure_future(_tell(line, progress))]
        try:
            async with aclosing(runner.results()) as results:
                async for _ in results:
                    await line.drain()
        finally:
            for task in beside:
                task.cancel()


async def _listen(line: Line, runner: Runner) -> None:
    """Do what the chief says; without a chief there is nobody to work for."""
    while (message := await line.hear()) is not None:
        match message:
            case Room(ceiling):
                runner.gate.change(bounded(runner.gate.pace, ceiling))
            case Stop(why):
                runner.stop(why)
            case Cancel():
                runner.cancel()
    runner.cancel()


async def _tell(line: Line, progress: Progress) -> None:
    while True:
        await asyncio.sleep(TELLS_EVERY)
        slowest = [(name, _short(doing)) for name, doing in progress.slowest(_SLOWEST)]
        line.say(Elsewhere(progress.running, progress.limit, slowest))


def _short(doing: Doing) -> Doing:
    return msgspec.structs.replace(doing, text=doing.text[:_CHARACTERS])


def _portable(problem: Exception) -> Exception:
    """An error that arrives as it was sent: ours do, others may not."""
    if isinstance(problem, StemmaError | OSError):
        return problem
    return RuntimeError("in a helper:\n" + "".join(traceback.format_exception(problem)))
