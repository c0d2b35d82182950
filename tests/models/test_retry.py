"""Promises of asking again."""

import asyncio

import pytest

from faultserver import in_loop
from stemma.models.errors import (
    BrokenReply,
    ContextTooLong,
    EndpointFailed,
    ModelError,
    RateLimited,
    Refused,
    ReplyTooLarge,
    TooSlow,
    Unreachable,
)
from stemma.models.retry import Retries, persist, retry_after


def test_waits_double_up_to_the_longest_and_half_of_each_is_chance():
    retries = Retries(attempts=9, first=1.0, longest=10.0)
    sure = [retries.pause(Unreachable("x"), attempt, 1.0) for attempt in range(1, 7)]
    assert sure == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    lucky = [retries.pause(Unreachable("x"), attempt, 0.0) for attempt in range(1, 7)]
    assert lucky == [wait / 2 for wait in sure]


def test_an_absurd_number_of_attempts_overflows_nothing():
    assert Retries(attempts=10**6).pause(Unreachable("x"), 99_999, 1.0) == 60.0


def test_an_endpoint_that_says_when_is_obeyed_up_to_the_longest():
    retries = Retries(longest=60.0)
    assert retries.pause(RateLimited("x", retry_after=7.0), 1, 0.0) == 7.0
    assert retries.pause(RateLimited("x", retry_after=7.0), 1, 0.5) == pytest.approx(7.35)
    assert retries.pause(RateLimited("x", retry_after=1e9), 1, 0.5) == 60.0
    assert retries.pause(RateLimited("x", retry_after=0.0), 1, 0.5) == 0.0


@pytest.mark.parametrize("kind", [Unreachable, TooSlow, RateLimited, EndpointFailed, BrokenReply])
def test_what_may_pass_is_asked_again(kind):
    assert Retries().pause(kind("x"), 1, 0.5) is not None
    assert Retries(attempts=3).pause(kind("x"), 3, 0.5) is None


@pytest.mark.parametrize("kind", [Refused, ContextTooLong, ReplyTooLarge])
def test_what_will_not_pass_is_not_asked_again(kind):
    assert Retries().pause(kind("x"), 1, 0.5) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 1.5 "}, 1.5),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "1000000000"}, 1e9),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"Retry-After": "Thu, 01 Jan 1970 00:01:40 -0000"}, 40.0),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"Retry-After": "Thu, 99 Jan 1970 00:00:10 GMT"}, None),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(headers, seconds):
    assert retry_after(headers, now=60.0) == seconds


class Asking:
    """Fails as it is told to, then answers."""

    def __init__(self, *problems: ModelError) -> None:
        self.problems, self.waits = list(problems), []

    async def ask(self, attempt: int) -> str:
        if self.problems:
            raise self.problems.pop(0)
        return f"answer {attempt}"

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def persist(self, retries: Retries, seconds: float = 100.0, **named) -> str:
        until = asyncio.get_running_loop().time() + seconds
        return await persist(self.ask, retries, until=until, sleep=self.sleep, chance=lambda: 1.0, **named)


@in_loop
async def test_it_asks_until_there_is_an_answer():
    asking, told = Asking(Unreachable("a"), TooSlow("b")), []
    assert await asking.persist(Retries(), before_retry=told.append) == "answer 3"
    assert asking.waits == [0.5, 1.0]
    assert [str(problem) for problem in told] == ["a", "b"]


@in_loop
async def test_the_last_failure_is_raised_with_the_number_of_attempts():
    asking = Asking(*(Unreachable(str(i)) for i in range(9)))
    with pytest.raises(Unreachable, match="2") as caught:
        await asking.persist(Retries(attempts=3))
    assert caught.value.__notes__ == ["asked 3 times"]
    assert caught.value.__context__ is None


@in_loop
async def test_a_wait_that_outlasts_the_deadline_is_not_begun():
    asking = Asking(RateLimited("later", retry_after=50.0))
    with pytest.raises(RateLimited):
        await asking.persist(Retries(), seconds=10.0)
    assert asking.waits == []
