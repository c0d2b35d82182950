"""A model that waits for its turn: what a batch asks goes through one gate.

The gate learns from every question how many the endpoint bears; whoever watches a task learns when it waits.
"""

from collections.abc import Callable

from stemma.batch.gate import Gate
from stemma.models.errors import ModelError
from stemma.models.protocol import Model, OnDelta, Reply, Request
from stemma.models.retry import watcher

OnWait = Callable[[ModelError, float], None]


class PacedModel:
    """Another model, behind a gate."""

    def __init__(self, model: Model, gate: Gate) -> None:
        self._model, self._gate = model, gate
        self.name, self.context_window = model.name, model.context_window

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        async with self._gate.place():
            before = watcher.get()
            token = watcher.set(self._told(before))
            try:
                reply = await self._model.reply(request, on_delta)
            finally:
                watcher.reset(token)
            self._gate.went_well()
            return reply

    async def samples(self, request: Request, n: int) -> list[Reply]:
        async with self._gate.place():
            return await self._model.samples(request, n)

    async def close(self) -> None:
        await self._model.close()

    def _told(self, before: OnWait | None) -> OnWait:
        def tell(problem: ModelError, seconds: float) -> None:
            self._gate.troubled(problem)
            if before is not None:
                before(problem, seconds)

        return tell
