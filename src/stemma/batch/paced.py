"""A model that waits for its turn: what a batch asks goes through one gate.

The gate learns from every answer that it may let more through; of trouble it is told by who watches the task.
`tests/batch/test_gate.py` proves it.
"""

from stemma.batch.gate import Gate
from stemma.models.protocol import Model, OnDelta, Reply, Request


class PacedModel:
    """Another model, behind a gate."""

    def __init__(self, model: Model, gate: Gate) -> None:
        self._model, self._gate = model, gate
        self.name, self.context_window = model.name, model.context_window

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        async with self._gate:
            reply = await self._model.reply(request, on_delta)
            self._gate.went_well()
            return reply

    async def samples(self, request: Request, n: int) -> list[Reply]:
        async with self._gate:
            return await self._model.samples(request, n)

    async def close(self) -> None:
        await self._model.close()
