"""A model that waits for its turn: what a batch asks goes through one gate, and is paid from one budget.

The gate learns from every answer that it may let more through; of trouble it is told by who watches the task. When the
budget is used up, a conversation is left where it is: it goes on when the run does, with more to spend.
`tests/batch/test_gate.py` and `tests/batch/test_budget.py` prove it.
"""

import asyncio
from collections.abc import Callable

from stemma.agent.limits import LimitReached, Limits, Spent
from stemma.batch.gate import Gate
from stemma.models.prices import tells_cost
from stemma.models.protocol import Model, OnDelta, Reply, Request


class PacedModel:
    """Another model, behind a gate."""

    def __init__(
        self,
        model: Model,
        gate: Gate,
        spent: Spent | None = None,
        limits: Limits | None = None,
        leave: Callable[[LimitReached], None] | None = None,
    ) -> None:
        """A model behind a gate.

        spent, limits: what the whole run has used, and may use
        leave: is told that there is no more to spend, and ends the conversation that asked
        """
        self._model, self._gate, self._leave = model, gate, leave
        self._spent, self._limits = spent, limits or Limits(turns=None)
        self.name, self.context_window = model.name, model.context_window
        self.params, self.prices = getattr(model, "params", {}), getattr(model, "prices", None)
        self.tells_cost = tells_cost(model)

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        async with self._gate:
            reply = await self._paid(request, on_delta)
            self._gate.went_well()
            return reply

    async def samples(self, request: Request, n: int) -> list[Reply]:
        async with self._gate:
            return await self._model.samples(request, n)

    async def close(self) -> None:
        await self._model.close()

    async def _paid(self, request: Request, on_delta: OnDelta | None) -> Reply:
        if self._spent is None or self._leave is None:
            return await self._model.reply(request, on_delta)
        try:
            async with self._spent.reserved(self._limits, self._model, request) as count:
                reply = await self._model.reply(request, on_delta)
                count(reply.call)
                return reply
        except LimitReached as reached:
            self._leave(reached)
        await asyncio.Event().wait()  # until the conversation is ended, which this call is part of
        raise AssertionError("unreachable: the conversation was to be cancelled")
