"""Ctrl-C: the first stops what runs, a second leaves; so does a polite kill. Both leave everything in order.

`tests/cli/test_chat_stopping.py` proves it.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

ONE_PRESS = 0.3
"""Seconds within which two signals are one Ctrl-C: a child that is just being forked hands us its own as well."""


async def stoppable(work: Coroutine[Any, Any, None]) -> bool:
    """Do the work; False if it was stopped."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    first: float | None = None

    def stop() -> None:
        nonlocal first
        if first is None:
            first = loop.time()
            task.cancel()
        elif loop.time() - first > ONE_PRESS:
            _leave()

    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGTERM, _leave)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():  # somebody stops us, not the work
            task.cancel()
            raise
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
    return True


def _leave() -> None:
    raise KeyboardInterrupt
