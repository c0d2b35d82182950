"""A conversation that is kept in a store while it goes on.

It is saved at every fact before the next step starts: whatever ends the process, only the step in flight is lost, and
`stemma chat --resume NAME` goes on from there. Beside the graph the store notes how the last turn ended: `stopped` is
None while it runs, so a turn that was killed can be told from one that ended. `tests/cli/test_chat.py` proves it.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from stemma.agent.agent import Agent, Conversation
from stemma.agent.facts import Fact, Stopped
from stemma.agent.limits import Spent
from stemma.agent.loop import answer_calls
from stemma.core.graph import MessageGraph
from stemma.models.protocol import OnDelta
from stemma.store.awaiting import on_disk

if TYPE_CHECKING:
    from stemma.store import Store


class Session:
    """A conversation, its name, and the store that keeps it."""

    def __init__(
        self,
        store: "Store",
        name: str,
        conversation: Conversation,
        about: Mapping[str, Any],
        agent_with: Callable[[str | None], Agent],
    ) -> None:
        self.store, self.name, self.conversation = store, name, conversation
        self.about = dict(about)
        """What the store notes beside the graph."""
        self._agent_with = agent_with

    @property
    def graph(self) -> MessageGraph:
        """All that was said."""
        return self.conversation.graph

    async def turn(self, prompt: str | None = None, on_delta: OnDelta | None = None) -> AsyncGenerator[Fact, None]:
        """Ask, fact by fact; without a prompt go on where the conversation stands. Open tool calls come first."""
        self.conversation.stopped = None
        try:
            async with aclosing(self._facts(prompt, on_delta)) as facts:
                async for fact in facts:
                    await self.save()
                    yield fact
        finally:
            if self.conversation.stopped is None:
                self.conversation.stopped = Stopped("interrupted")
            await self.save()

    async def _facts(self, prompt: str | None, on_delta: OnDelta | None) -> AsyncGenerator[Fact, None]:
        talk, setup = self.conversation, self.conversation.agent.setup
        if prompt is not None:
            async for fact in answer_calls(self.graph, setup, talk.workspace, Spent(setup.clock)):
                if isinstance(fact, Stopped):  # the prompt comes after those results, so it was not said
                    talk.stopped = fact
                yield fact
                if isinstance(fact, Stopped):
                    return
            self.graph.append({"role": "user", "content": prompt})
            await self.save()  # the first fact may come late: the context may have to be shortened first
        async for fact in talk.facts((), on_delta):
            yield fact

    async def save(self) -> None:
        """Keep the conversation as it is now; on the disk when this returns."""
        ended: dict[str, Any] = {"stopped": self.conversation.stop_reason, "completed": self.conversation.completed}
        if self.conversation.written is not None:
            ended["trajectory"] = list(self.conversation.written)
        saved = self.store.save_soon(self.graph, self.name, metadata={**self.about, **ended})
        await on_disk(saved)

    async def branch(self, name: str) -> None:
        """Go on in a copy of the conversation with a name of its own; this one stays as it is."""
        await self.save()
        before, self.name = self.conversation, name
        self.conversation = before.agent.start(self.graph.fork())
        self.conversation.workspace, self.conversation.stopped = before.workspace, before.stopped
        await self.save()

    def change_model(self, name: str) -> None:
        """Go on with another model."""
        self.conversation.agent = self._agent_with(name)
        self.about["chat"] = {**self.about["chat"], "model": name}
