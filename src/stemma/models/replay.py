"""A model that answers from recordings: the same context gets the same reply, another context is an error.

It is made from graphs. Where one context was sampled several times, the replies come in the order recorded.
`tests/models/test_replay.py` proves it.
"""

from collections.abc import Iterable

from stemma.core.graph import MessageGraph
from stemma.core.ids import ROOT, Id, chain
from stemma.core.message import Message
from stemma.core.rows import replies
from stemma.core.splice import shared
from stemma.models.errors import NoMoreReplies
from stemma.models.protocol import Delta, OnDelta, Reply, Request


class ReplayModel:
    """Recorded replies."""

    def __init__(self, graphs: Iterable[MessageGraph], *, name: str = "replay") -> None:
        self.name = name
        self.context_window = None
        self._contexts: dict[Id, list[Message]] = {}
        self._replies: dict[Id, list[Reply]] = {}
        for graph in graphs:
            for member in graph.reach():
                self._learn(member)

    def _learn(self, graph: MessageGraph) -> None:
        for heard in replies(graph):
            saw = heard.nodes[heard.at - 1] if heard.at else ROOT
            self._contexts[saw] = heard.line[: heard.at]
            reply = Reply(message=heard.line[heard.at].to_dict(), call=heard.call)
            self._replies.setdefault(saw, []).append(reply)

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        asked = [Message.of(m) for m in request.messages]
        saw = chain(ROOT, (m.id for m in asked))[-1] if asked else ROOT
        waiting = self._replies.get(saw)
        if not waiting:
            raise NoMoreReplies(self._first_difference(asked, known=saw in self._replies))
        reply = waiting.pop(0)
        if on_delta is not None and isinstance(reply.message.get("content"), str):
            on_delta(Delta("text", reply.message["content"]))
        return reply

    async def samples(self, request: Request, n: int) -> list[Reply]:
        return [await self.reply(request) for _ in range(n)]

    async def close(self) -> None:
        """Nothing to let go of."""

    def _first_difference(self, asked: list[Message], *, known: bool) -> str:
        """How the context differs from the recorded one that goes with it furthest."""
        if known:
            return "every recorded reply to this context has been given; the recording has no more"
        if not self._contexts:
            return "the recording holds no replies"
        nearest = max(self._contexts.values(), key=lambda line: shared(line, asked)[0])
        at = shared(nearest, asked)[0]
        mine = asked[at].to_dict() if at < len(asked) else "nothing"
        theirs = nearest[at].to_dict() if at < len(nearest) else "nothing"
        return f"no reply was recorded here; at message {at} it has {mine!r:.300}, the recording {theirs!r:.300}"
