"""A conversation that no store has seen, laid out as it will be kept.

All that is hashed is hashed here, which needs no store: another process may do it, as `stemma import` lets one. What is
left for the store is to give its rows their numbers. Every sampled message is the reply of one and the same call, as
datasets tell it, save for the last one, of which they may tell more. Saved, it is the graph that `Fresh.graph` gives:
`tests/store/test_fresh.py` proves it.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from stemma.core.call import Call
from stemma.core.canonical import decode
from stemma.core.fingerprint import START, call_fact, roll
from stemma.core.graph import MessageGraph
from stemma.core.ids import ROOT, Id, call_id_of_hashes, chain
from stemma.core.message import Message


class FreshCall(NamedTuple):
    """One reply."""

    id: Id
    saw: Id
    made: Id
    event: bytes
    at: int
    body: bytes
    """The call, as `Call.to_bytes` gives it."""


class Fresh(msgspec.Struct, frozen=True):
    """A line, and the replies on it."""

    messages: list[tuple[Id, bytes]]
    """Each message's id and body."""
    tip: Id
    calls: list[FreshCall]
    calls_hash: Id
    tools: bytes | None
    """The tools offered to all of them, encoded."""

    def graph(self) -> MessageGraph:
        """The conversation as a graph."""
        tools = None if self.tools is None else decode(self.tools)
        calls = {one.at: Call.from_bytes(one.body, tools) for one in self.calls}
        graph = MessageGraph()
        for at, (name, body) in enumerate(self.messages):
            message = Message.stored(body, name)
            graph.record(message, calls[at]) if at in calls else graph.append(message)
        return graph


def lay_out(
    messages: Sequence[Message],
    sampled: Iterable[int],
    call: Call,
    event: Callable[[], bytes],
    last: Call | None = None,
) -> Fresh:
    """A line whose messages at `sampled` are replies of `call`; `event` makes up what tells each from all others.

    The last of them is the reply of `last`, if that is given, which has the tools of `call`.
    """
    nodes = [ROOT, *chain(ROOT, (message.id for message in messages))]
    parts = call.parts()
    hashes = [sha256(part).digest() for part in parts]
    calls = []
    places = sorted(sampled)
    for at in places:
        if last is not None and last is not call and at == places[-1]:
            parts = last.parts()
            hashes = [sha256(part).digest() for part in parts]
        saw, made, mark = nodes[at], nodes[at + 1], event()
        calls.append(FreshCall(call_id_of_hashes(saw, made, hashes, mark), saw, made, mark, at, parts[0]))
    return Fresh(
        messages=[(message.id, message.body) for message in messages],
        tip=nodes[-1],
        calls=calls,
        calls_hash=roll(START, (call_fact(one.id, one.at) for one in calls)),
        tools=None if call.tools is None else parts[1],
    )
