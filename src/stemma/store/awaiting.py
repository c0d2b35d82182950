"""Waiting for a save in an event loop. Who stops waiting does not take the save back."""

import asyncio
from concurrent.futures import Future
from contextlib import suppress


async def on_disk(saving: "Future[None]") -> None:
    """Return when it is on the disk, or raise what kept it from there."""
    loop = asyncio.get_running_loop()
    told = loop.create_future()

    def settle() -> None:
        if told.done():
            return
        problem = saving.exception()
        told.set_result(None) if problem is None else told.set_exception(problem)

    def tell(_: "Future[None]") -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            loop.call_soon_threadsafe(settle)

    saving.add_done_callback(tell)
    await told
