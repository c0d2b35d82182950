"""Ctrl-C stops the work, and only a second one leaves."""

import asyncio
import os
import signal

import pytest

from stemma.cli.chat_stopping import stoppable


async def pressed(*pauses: float) -> bool:
    """Whether work that is slow to stop got done, Ctrl-C being pressed after each pause."""

    async def press() -> None:
        for pause in pauses:
            await asyncio.sleep(pause)
            os.kill(os.getpid(), signal.SIGINT)

    async def work() -> None:
        try:
            await asyncio.sleep(1 if pauses else 0)
        finally:
            await asyncio.sleep(1 if pauses else 0)

    async with asyncio.TaskGroup() as group:
        pressing = group.create_task(press())
        done = await stoppable(work())
        await pressing
    return done


def test_work_that_nobody_stops_gets_done():
    assert asyncio.run(pressed()) is True


@pytest.mark.parametrize("pauses", [(0.05,), (0.05, 0.0), (0.05, 0.01, 0.01)])
def test_one_press_stops_the_work_even_if_it_is_heard_twice(pauses):
    assert asyncio.run(pressed(*pauses)) is False


def test_a_second_press_leaves():
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(pressed(0.05, 0.5))
