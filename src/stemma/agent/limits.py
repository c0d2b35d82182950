"""How far a conversation may go: turns, tokens, seconds, money. What is None has no limit."""

from collections.abc import Callable

import msgspec

from stemma.agent.facts import StopReason
from stemma.core.call import Call


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one conversation."""

    turns: int | None = 60
    """Model calls."""
    tokens: int | None = None
    """Prompt and reply tokens of all calls together, as the endpoint counts them."""
    seconds: float | None = None
    """Wall clock since the start."""
    cost: float | None = None
    """US dollars, where the endpoint says what a call costs."""


class Spent:
    """What a conversation has used so far."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._start = clock, clock()
        self.turns = 0
        self.tokens = 0
        self.cost: float | None = None
        """None while no call has said what it costs; never a guess."""

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._start

    def add(self, call: Call) -> None:
        """Count one model call."""
        self.turns += 1
        total = call.usage.get("total_tokens")
        self.tokens += total if isinstance(total, int) and total > 0 else 0
        if call.cost is not None:
            self.cost = (self.cost or 0.0) + call.cost

    def reached(self, limits: Limits) -> StopReason | None:
        """The first limit that is used up."""
        bounds: list[tuple[StopReason, float | None, float]] = [
            ("turns", limits.turns, self.turns),
            ("tokens", limits.tokens, self.tokens),
            ("seconds", limits.seconds, self.seconds),
            ("cost", limits.cost, self.cost or 0.0),
        ]
        return next((name for name, bound, used in bounds if bound is not None and used >= bound), None)
