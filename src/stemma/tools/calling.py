"""Calling a function that a user wrote: whatever it does is the outcome of that call and touches no other.

A sync function runs in a thread of its own, an async one in a task of its own; both may have a time limit. A task that
does not end when it is cancelled, and a thread, which cannot be ended, are left to themselves when the time is up.

    raises StopIteration, CancelledError, SystemExit …    an exception like any other
    changes the working folder (os.chdir)                  a `FolderChanged`; nobody else sees the other folder

On Linux each thread gets a working folder of its own (unshare CLONE_FS); an async function is looked at after every
step. Where the kernel refuses that, as in some containers, the folder is put back when the call ends.
KeyboardInterrupt in the main thread rises: it is the user's Ctrl-C. `tests/tools/test_calling.py` proves it.
"""

import asyncio
import inspect
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from types import coroutine as generator_coroutine
from typing import Any

import msgspec

from stemma.errors import StemmaError

_GRACE = 1.0
"""How long a task that was cancelled may take to end."""
_CLONE_FS = 0x200


class FolderChanged(StemmaError):
    """A function changed the working folder of the process."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a call."""

    value: Any = None
    problem: BaseException | None = None
    """What it raised; None if it returned `value`."""


async def outcome_of(
    function: Callable[..., Any], /, *given: Any, seconds: float | None = None, quick: bool = False
) -> Outcome:
    """Call `function(*given)`; the problem is a `TimeoutError` if it takes longer than `seconds`.

    quick: call a sync function in the event loop itself, which no time limit can end
    """
    if inspect.iscoroutinefunction(function):
        return await _in_task(function, given, seconds)
    if quick:
        return _called(function, given)
    return await _in_thread(function, given, seconds)


# ── async functions ──────────────────────────────────────────────────────────────────────────────────────────────


async def _in_task(function: Callable[..., Any], given: tuple[Any, ...], seconds: float | None) -> Outcome:
    task = asyncio.ensure_future(_awaited(function, given))
    try:
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            return Outcome(problem=asyncio.CancelledError()) if task.cancelled() else task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_GRACE)
    return Outcome(problem=_too_long(seconds))


async def _awaited(function: Callable[..., Any], given: tuple[Any, ...]) -> Outcome:
    try:
        return Outcome(await _keeping_folder(function(*given)))
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        own = asyncio.current_task()
        if isinstance(problem, asyncio.CancelledError) and own is not None and own.cancelling():
            raise
        return Outcome(problem=problem)


@generator_coroutine
def _keeping_folder(work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a coroutine; a step after which the working folder is another is its last."""
    step: Callable[[Any], Any] = work.send
    given: Any = None
    while True:
        home = _folder()
        try:
            waits_for = step(given)
        except StopIteration as returned:
            _put_back(home)
            return returned.value
        except BaseException:
            with suppress(FolderChanged):
                _put_back(home)
            raise
        try:
            _put_back(home)
            given = yield waits_for
            step = work.send
        except FolderChanged:
            work.close()
            raise
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:  # noqa: BLE001  a cancellation, which the coroutine is to see
            step, given = work.throw, thrown


# ── sync functions ───────────────────────────────────────────────────────────────────────────────────────────────


async def _in_thread(function: Callable[..., Any], given: tuple[Any, ...], seconds: float | None) -> Outcome:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def settle(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        _separate_folder()
        outcome = _called(function, given)
        with suppress(RuntimeError):  # the loop has ended without waiting for us
            loop.call_soon_threadsafe(settle, outcome)

    # A thread of its own, which nobody waits for at the end: one that hangs must hold neither the others nor the exit.
    threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            return await done
    except TimeoutError:
        return Outcome(problem=_too_long(seconds))


def _called(function: Callable[..., Any], given: tuple[Any, ...]) -> Outcome:
    home = _folder()
    try:
        value = function(*given)
        _put_back(home)
        return Outcome(value)
    except BaseException as problem:
        with suppress(FolderChanged):
            _put_back(home)
        if isinstance(problem, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return Outcome(problem=problem)


def _too_long(seconds: float | None) -> TimeoutError:
    return TimeoutError(f"it took longer than {seconds:g} seconds" if seconds is not None else "it was cancelled")


# ── the working folder ───────────────────────────────────────────────────────────────────────────────────────────


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # somebody has removed it
        return None


def _put_back(home: str | None) -> None:
    """`FolderChanged` if the working folder is not `home`, which it is when this returns."""
    now = _folder()
    if home is None or now == home:
        return
    os.chdir(home)
    raise FolderChanged(f"it changed the working folder of the process to {now}; use absolute paths, or a Workspace")


def _separate_folder() -> None:
    """Give this thread a working folder of its own, where the kernel lets us."""
    if (unshare := _unshare()) is not None:
        unshare(_CLONE_FS)


@cache
def _unshare() -> Callable[[int], Any] | None:
    """unshare(2) that returns an error instead of raising it; None where there is none."""
    if sys.platform != "linux":
        return None
    import ctypes

    found: Callable[[int], Any] | None = getattr(ctypes.CDLL(None), "unshare", None)
    return found
