"""Ctrl-C: the first stops what runs, a second leaves."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def stoppable(work: Coroutine[Any, Any, None]) -> bool:
    """Do the work; False if it was stopped."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()

    def stop() -> None:
        if task.cancelling():
            raise KeyboardInterrupt
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():  # somebody stops us, not the work
            task.cancel()
            raise
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return True
