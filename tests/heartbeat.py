"""How long the event loop was held up while something ran beside it.

A task asks to be woken every few milliseconds, and notes how late it was. What the kernel says a thread of this
process spent waiting for a processor meanwhile is taken off: that is the machine's doing. So is collecting garbage
that the tests before this one made. What is left is code that computes in the loop, waits in it, or holds the lock of
the interpreter in a thread.
"""

import asyncio
import gc
import os
import time
from contextlib import contextmanager, suppress

BEAT = 0.005


async def beside(work):
    """What came of `work`, and for how many seconds at most it held up the loop."""
    task, worst = asyncio.ensure_future(work), 0.0
    with _old_garbage_left_alone():
        while not task.done():
            begun, before = time.perf_counter(), _waits()
            await asyncio.sleep(BEAT)
            late = time.perf_counter() - begun - BEAT
            machine = max((waited - before.get(thread, 0.0) for thread, waited in _waits().items()), default=0.0)
            worst = max(worst, late - machine)
    return await task, worst


def _waits():
    """How many seconds each thread of this process has waited for a processor; nothing if the kernel does not say."""
    found = {}
    for thread in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/self/task/{thread}/schedstat") as file:
            found[thread] = int(file.read().split()[1]) / 1e9
    return found


@contextmanager
def _old_garbage_left_alone():
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
