"""Ctrl-C: the first stops what runs, a second leaves; so does a polite kill. Both leave everything in order.

`tests/cli/test_chat.py` and `test_chat_live.py` prove it.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def stoppable(work: Coroutine[Any, Any, None]) -> bool:
    """Do the work; False if it was stopped."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()

    def stop() -> None:
        if task.cancelling():
            _leave()
        task.cancel()

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
