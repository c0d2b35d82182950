"""When to ask again, and how long to wait before.

Only what may pass is asked again (`ModelError.retryable`): 408, 409, 425, 429, 5xx, a connection that failed, a
deadline, a reply that was not whole. A tool call that the harness could not run (`HarnessFailed`) is tried again in the
same way. The wait doubles from `first` and is never longer than `longest`; half of it is
chance, so that a thousand conversations do not come back in one moment. An endpoint that says when (`Retry-After`, in
seconds or as a date) is obeyed, up to `longest`. A wait that would outlast the time that is left is not begun.
`tests/models/test_retry.py` proves it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import UTC
from email.utils import parsedate_to_datetime
from itertools import count
from math import isfinite
from typing import Any, TypeVar

import msgspec

from stemma.errors import HarnessFailed
from stemma.models.errors import ModelError

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
Chance = Callable[[], float]
"""A number from 0 up to 1, like `random.random`."""
Passing = ModelError | HarnessFailed
"""What may be over a moment later."""
Watcher = Callable[[Passing, float], None]

watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)
"""Who is told, in this task, that a question failed and after how many seconds it is asked again."""


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how patiently, to ask."""

    attempts: int = 5
    """How many times in all; 1 means never again."""
    first: float = 0.5
    """Seconds before the second attempt; each further wait is twice as long."""
    longest: float = 60.0
    """No wait is longer, whatever an endpoint asks for."""

    def pause(self, problem: Passing, attempt: int, chance: float) -> float | None:
        """Seconds to wait after the failure of this attempt (they count from 1); None: do not ask again."""
        if not problem.retryable or attempt >= self.attempts:
            return None
        if problem.retry_after is not None:
            return min(problem.retry_after * (1 + chance / 10), self.longest)
        # 2.0**1024 would overflow; sixty doublings outlast any `longest`.
        backoff = self.first * 2.0 ** min(attempt - 1, 60)
        return min(backoff, self.longest) * (0.5 + chance / 2)


async def persist(
    ask: Callable[[int], Awaitable[T]],
    retries: Retries,
    *,
    until: float,
    sleep: Sleep = asyncio.sleep,
    chance: Chance,
    before_retry: Callable[[Any], None] | None = None,
) -> T:
    """What `ask(attempt)` gives, asked as often as it takes; the last failure if it never does before `until`."""
    for attempt in count(1):
        try:
            return await ask(attempt)
        except (ModelError, HarnessFailed) as problem:
            pause = retries.pause(problem, attempt, chance())
            if pause is None or asyncio.get_running_loop().time() + pause >= until:
                if attempt > 1:
                    problem.add_note(f"asked {attempt} times")
                raise
            if before_retry is not None:
                before_retry(problem)
            if (told := watcher.get()) is not None:
                told(problem, pause)
        await sleep(pause)
    raise AssertionError("unreachable: count() has no end")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds an endpoint asks one to wait, if it does so in a way that can be read.

    >>> retry_after({"Retry-After": "7"}, now=0.0)
    7.0
    >>> retry_after({"Retry-After": "Thu, 01 Jan 1970 00:01:40 GMT"}, now=90.0)
    10.0
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    said = headers.get("Retry-After")
    seconds = _number(said)
    return seconds if seconds is not None or said is None else _until_date(said, now)


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return max(number, 0.0) if number is not None and isfinite(number) else None


def _until_date(text: str, now: float) -> float | None:
    try:
        when = parsedate_to_datetime(text)
        # A date without a zone is meant in GMT, as HTTP has it.
        moment = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(moment - now, 0.0)
