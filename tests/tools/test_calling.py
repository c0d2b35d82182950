"""A user's function can do what it likes: it is the outcome of its own call, and nobody else notices."""

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest

from stemma.tools.calling import FolderChanged, outcome_of

ODD = [StopIteration("over"), asyncio.CancelledError("gone"), SystemExit(3), GeneratorExit(), KeyError("k")]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    return os.getcwd()


def outcome(function, **more):
    return asyncio.run(asyncio.wait_for(outcome_of(function, **more), 10))


@pytest.mark.parametrize("problem", ODD, ids=lambda problem: type(problem).__name__)
def test_whatever_a_sync_function_raises_is_its_problem_and_nothing_hangs(problem):
    def raises():
        raise problem

    assert outcome(raises).problem is problem
    assert outcome(raises, quick=True).problem is problem


@pytest.mark.parametrize("problem", ODD, ids=lambda problem: type(problem).__name__)
def test_whatever_an_async_function_raises_is_its_problem_too(problem):
    async def raises():
        await asyncio.sleep(0)
        raise problem

    found = outcome(raises).problem
    assert found is problem or found.__cause__ is problem  # Python itself renames StopIteration in a coroutine


def test_an_async_function_that_cancels_its_own_task_cancels_nobody_else():
    async def cancels():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    assert isinstance(outcome(cancels).problem, asyncio.CancelledError)


def test_a_keyboard_interrupt_in_a_thread_is_no_ctrl_c():
    def interrupts():
        raise KeyboardInterrupt

    assert isinstance(outcome(interrupts).problem, KeyboardInterrupt)


def test_a_value_comes_back_with_the_context_of_the_caller():
    assert outcome(lambda: (threading.current_thread().daemon, 5)).value == (True, 5)


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_async_function_that_takes_too_long_is_left_even_if_it_will_not_end(stubborn):
    released = asyncio.Event()

    async def slow():
        while not released.is_set():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    async def run():
        found = await outcome_of(slow, seconds=0.05)
        released.set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return found

    assert "longer than 0.05 seconds" in str(asyncio.run(run()).problem)


def test_a_sync_function_that_takes_too_long_holds_neither_the_caller_nor_the_end_of_the_loop():
    begun, release = time.monotonic(), threading.Event()
    assert isinstance(outcome(release.wait, seconds=0.05).problem, TimeoutError)
    assert time.monotonic() - begun < 5
    release.set()


def test_more_sync_functions_run_side_by_side_than_a_pool_has_threads():
    number = 64
    together = threading.Barrier(number)

    async def run():
        return await asyncio.gather(*(outcome_of(together.wait, 10) for _ in range(number)))

    assert all(one.problem is None for one in asyncio.run(run()))


def test_cancelling_the_caller_cancels_an_async_function_and_leaves_when_it_has_ended():
    ended = []

    async def slow():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)

    async def run():
        calling = asyncio.ensure_future(outcome_of(slow))
        await asyncio.sleep(0.01)
        calling.cancel()
        await asyncio.wait([calling])
        return calling.cancelled(), list(ended)

    assert asyncio.run(run()) == (True, [1])


@pytest.mark.parametrize("quick", [False, True])
def test_a_sync_function_that_changes_the_folder_has_failed_and_the_folder_is_back(here, quick):
    found = outcome(lambda: os.chdir("elsewhere"), quick=quick)
    assert isinstance(found.problem, FolderChanged)
    assert "elsewhere" in str(found.problem)
    assert os.getcwd() == here


def test_an_async_function_that_changes_the_folder_is_stopped_at_that_step(here):
    seen, went_on = [], []

    async def changes():
        await asyncio.sleep(0)
        os.chdir("elsewhere")
        await asyncio.sleep(0)
        went_on.append(1)

    async def run():
        async def look():
            while True:
                seen.append(os.getcwd())
                await asyncio.sleep(0)

        looking = asyncio.ensure_future(look())
        found = await outcome_of(changes)
        looking.cancel()
        return found

    assert isinstance(asyncio.run(run()).problem, FolderChanged)
    assert set(seen) == {here}
    assert not went_on


def test_a_function_that_changes_the_folder_and_raises_says_what_it_raised(here):
    def changes():
        os.chdir("elsewhere")
        raise KeyError("k")

    async def changes_async():
        changes()

    assert isinstance(outcome(changes).problem, KeyError)
    assert isinstance(outcome(changes_async).problem, KeyError)
    assert os.getcwd() == here


def _threads_have_folders() -> bool:
    """Whether unshare(2) lets a thread have a working folder of its own here; some containers forbid it."""
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x200) != 0)"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.skipif(not _threads_have_folders(), reason="unshare(CLONE_FS) is not allowed here")
def test_while_a_thread_works_in_another_folder_nobody_else_does(here):
    changed, release = threading.Event(), threading.Event()

    def changes():
        os.chdir("elsewhere")
        changed.set()
        release.wait(10)
        return os.getcwd()

    async def run():
        changing = asyncio.ensure_future(outcome_of(changes))
        while not changed.is_set():
            await asyncio.sleep(0.01)
        others = os.getcwd(), (await outcome_of(os.getcwd)).value
        release.set()
        await changing
        return others

    assert asyncio.run(run()) == (here, here)
