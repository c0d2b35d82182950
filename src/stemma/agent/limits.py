"""How far a conversation may go: turns, tokens, seconds, money. What is None has no limit.

A limit is shared by a conversation and all subagents that work for it: they have one account (`Spent`). A call is made
only when it fits beside those in flight: each of them reserves as much as it may use (`models.prices.most_of`), and
where no `max_tokens` says so, as much as the largest call so far. What does not fit waits until calls in flight have
come back. So a limit is exceeded by no more than one call, as far as `max_tokens` bounds them; without, later calls may
be larger than all before. A limit on tokens or money that the endpoint's replies do not let us count is used up with
the first such reply. `tests/agent/test_limits.py` proves it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from math import inf
from typing import Any

import msgspec

from stemma.agent.facts import StopReason
from stemma.core.call import Call
from stemma.models.prices import HOW_TO_PRICE, Most, most_of
from stemma.models.protocol import Model, Request

AT_ONCE = 8
"""How many calls of a conversation and its subagents may be in flight."""
_CENTS = 1e-9
"""Sums of cents are not exact."""
NO_PRICES = f"the replies do not say what they cost, so a limit in dollars cannot be kept: {HOW_TO_PRICE}"
NO_USAGE = "the replies do not say how many tokens they used, so a limit in tokens cannot be kept"


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one conversation, the subagents that work for it included."""

    turns: int | None = 60
    """Model calls."""
    tokens: int | None = None
    """Prompt and reply tokens of all calls together, as the endpoint counts them."""
    seconds: float | None = None
    """Wall clock since the start."""
    cost: float | None = None
    """US dollars, where the endpoint says what a call costs."""


class LimitReached(Exception):
    """No further call may be made."""

    def __init__(self, limit: StopReason, detail: str = "") -> None:
        super().__init__(limit, detail)
        self.limit, self.detail = limit, detail


class Spent:
    """What has been used so far, and what calls in flight may yet use."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        tokens: int = 0,
        cost: float | None = None,
        at_once: int | None = AT_ONCE,
    ) -> None:
        self._clock, self._start, self._at_once = clock, clock(), at_once
        self.turns = 0
        self.tokens = tokens
        self.cost = cost
        """None while no call has said what it costs; never a guess."""
        self._uncounted = self._unpriced = False
        self._largest, self._largest_reply = 0, 0
        self._dearest: float | None = None
        self._in_flight: list[Most] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._start

    def add(self, call: Call) -> None:
        """Count one model call."""
        self.turns += 1
        tokens = _tokens_of(call)
        self._uncounted = self._uncounted or tokens is None
        self.tokens += tokens or 0
        self._largest = max(self._largest, tokens or 0)
        self._largest_reply = max(self._largest_reply, _count(call, "completion_tokens"))
        self._unpriced = self._unpriced or call.cost is None
        if call.cost is not None:
            self.cost = (self.cost or 0.0) + call.cost
            self._dearest = max(self._dearest or 0.0, call.cost)

    def reached(self, limits: Limits) -> StopReason | None:
        """The first limit that is used up."""
        bounds: list[tuple[StopReason, float | None, float]] = [
            ("turns", limits.turns, self.turns),
            ("tokens", limits.tokens, inf if self._uncounted else self.tokens),
            ("seconds", limits.seconds, self.seconds),
            ("cost", limits.cost, inf if self._unpriced else (self.cost or 0.0) + _CENTS),
        ]
        return next((name for name, bound, used in bounds if bound is not None and used >= bound), None)

    def check(self, limits: Limits) -> None:
        """`LimitReached` if one is used up."""
        if (limit := self.reached(limits)) is not None:
            raise LimitReached(limit, self.why(limit))

    def why(self, limit: StopReason) -> str:
        """What more there is to say of a limit that was reached."""
        if limit == "tokens" and self._uncounted:
            return NO_USAGE
        return NO_PRICES if limit == "cost" and self._unpriced else ""

    # ── calls in flight ──────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def reserved(self, limits: Limits, model: Model, request: Request) -> AsyncIterator[Callable[[Call], None]]:
        """Room for one call, as soon as there is some; what is given counts the call. `LimitReached` if there is none.

        A call that fails is not counted.
        """
        counted = limits.tokens is not None or limits.cost is not None
        most = most_of(model, request) if counted else Most()
        await self._admitted(limits, most)
        self._in_flight.append(most)
        try:
            self._let_next_try()
            yield self.add
        finally:
            self._in_flight.remove(most)
            self._let_next_try()

    async def _admitted(self, limits: Limits, most: Most) -> None:
        """Wait until a call may be made."""
        first = True
        while True:
            try:
                self.check(limits)
            except LimitReached:
                self._let_next_try()
                raise
            if not (first and self._waiting) and self._fits(limits, most):
                return
            await self._turn(first=first)
            first = False

    async def _turn(self, *, first: bool) -> None:
        """Wait until something has changed, in the order of arrival."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.append(turn)
        else:
            self._waiting.appendleft(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            self._let_next_try()
            raise

    def _let_next_try(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)

    def _fits(self, limits: Limits, most: Most) -> bool:
        """Whether a call may be made beside those in flight; alone it always may, so that nothing waits for ever."""
        calls = [*self._in_flight, most]
        if len(calls) == 1:
            return True
        if self._at_once is not None and len(calls) > self._at_once:
            return False
        if limits.turns is not None and self.turns + len(calls) > limits.turns:
            return False
        tokens, cost = _total(map(self._tokens_for, calls)), _total(map(self._cost_for, calls))
        fits_tokens = limits.tokens is None or (tokens is not None and self.tokens + tokens <= limits.tokens)
        fits_cost = limits.cost is None or (cost is not None and (self.cost or 0.0) + cost <= limits.cost + _CENTS)
        return fits_tokens and fits_cost

    def _tokens_for(self, most: Most) -> float | None:
        """What to reserve for a call; None if nothing says, and then it is made alone."""
        if most.reply is not None:
            return max(most.prompt + most.reply, self._largest)
        return max(most.prompt + self._largest_reply, self._largest) if self._may_guess() else None

    def _cost_for(self, most: Most) -> float | None:
        if most.cost is not None:
            return max(most.cost, self._dearest or 0.0)
        return self._dearest if self._may_guess() else None

    def _may_guess(self) -> bool:
        """Whether calls have been counted by which others can be judged: no more at once than that."""
        return self.turns > len(self._in_flight)


class Shared(msgspec.Struct, frozen=True):
    """What a conversation shares with the subagents that its tools start."""

    model: Model
    params: Mapping[str, Any]
    limits: Limits
    spent: Spent


shared: ContextVar[Shared | None] = ContextVar("shared", default=None)
"""What the conversation whose tool is running shares with its subagents."""


def _total(amounts: "map[float | None]") -> float | None:
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def _tokens_of(call: Call) -> int | None:
    """All tokens of a call; None if the endpoint does not say."""
    if total := _count(call, "total_tokens"):
        return total
    return (_count(call, "prompt_tokens") + _count(call, "completion_tokens")) or None


def _count(call: Call, name: str) -> int:
    number = call.usage.get(name)
    return number if type(number) is int and number > 0 else 0
