"""Saves of many conversations in one event loop, written together.

Each waits a moment for the others; then the loop's own thread writes all of them in one transaction. That is faster
than handing them to another thread, and nobody waits longer than the moment and the write.
`tests/store/test_together.py` proves it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from stemma.core.graph import MessageGraph
from stemma.store.protocol import Prepared, Store

MOMENT = 0.003
"""Seconds that the first save waits for others."""


class Together:
    """A store as one event loop uses it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Prepared, asyncio.Future[None]]] = []

    async def save(self, graph: MessageGraph, name: str, *, run: str, metadata: Mapping[str, Any]) -> None:
        """Keep the graph as it is now; on disk when this returns. Who stops waiting does not take it back."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(MOMENT, self.flush)
        done = loop.create_future()
        self._waiting.append((self._store.prepare(graph, name, run=run, metadata=metadata), done))
        await done

    def flush(self) -> None:
        """Write all that waits."""
        group, self._waiting = self._waiting, []
        if not group:
            return
        problem: Exception | None = None
        try:
            self._store.write([prepared for prepared, _ in group])
        except Exception as trouble:  # noqa: BLE001  it rises where each save is awaited
            problem = trouble
        for _, done in group:
            if not done.done():
                done.set_result(None) if problem is None else done.set_exception(problem)
