"""The calls of a conversation as token events: which call stands before which, by messages and by time.

A call comes *before* another if its reply stands last in the other's context: identity, known from the line. The
*previous* call is the one recorded before it in the same conversation. Where the previous one's reply no longer stands
in the context, `left` says why its line was left. `tests/core/test_breaks.py` proves it.
"""

from typing import TYPE_CHECKING

import msgspec

from stemma.core.call import Call
from stemma.core.ids import ROOT, Id, call_id
from stemma.core.message import REASONING_FIELDS, Message
from stemma.core.rows import Reply, replies

if TYPE_CHECKING:
    from stemma.core.graph import MessageGraph


class Captured(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One recorded call, wherever below a graph it was made."""

    call: Call
    saw: Id
    """The node it saw; the root's id if its context was empty."""
    made: Id
    event: bytes
    """What tells it from a call alike in everything."""
    line: list[Message]
    """The context it was sampled from, as messages."""
    before: int | None
    """Whose reply stands last in its context."""
    previous: int | None
    """Which call was recorded before it in the same conversation."""
    left: str | None
    """Why the line of the previous one was left, if its reply does not stand in this context."""
    thought: bool
    """Whether its reply has reasoning, which a template may later leave out."""

    @property
    def id(self) -> str:
        """The call's id, as the store has it."""
        return call_id(self.saw, self.made, self.call.parts(), self.event).hex()


def captured(graph: "MessageGraph", name: str = "") -> list[Captured]:
    """Every call of a graph and of its subagents, each once, conversation by conversation as recorded.

    Calls that were never saved have nothing yet that tells them from equal ones: `name` and their place do it here.
    """
    found: list[Captured] = []
    seen: set[object] = set()
    for member in graph.reach():
        made: dict[Id, int] = {}
        previous: tuple[int, Reply] | None = None
        for reply in replies(member):
            recorded = member._recorded[reply.number]
            if (event := recorded.known_as) in seen:
                continue
            seen.add(event)
            told_apart = recorded.event or f"{name}/{len(found)}".encode()
            found.append(_captured(member, reply, told_apart, made, previous))
            previous = (len(found) - 1, reply)
            made.setdefault(reply.nodes[reply.at], len(found) - 1)
    return found


def _captured(
    member: "MessageGraph", reply: Reply, event: bytes, made: dict[Id, int], previous: tuple[int, Reply] | None
) -> Captured:
    nodes, at = reply.nodes, reply.at
    return Captured(
        call=reply.call,
        saw=nodes[at - 1] if at else ROOT,
        made=nodes[at],
        event=event,
        line=reply.line[:at],
        before=next((made[nodes[i]] for i in range(at - 1, -1, -1) if nodes[i] in made), None),
        previous=previous[0] if previous else None,
        left=_left(member, previous[1], reply) if previous else None,
        thought=_thought(reply),
    )


def _left(member: "MessageGraph", earlier: Reply, reply: Reply) -> str | None:
    if earlier.at < reply.at and reply.nodes[earlier.at] == earlier.nodes[earlier.at]:
        return None
    return "edit" if earlier.version is None else member._history.kept[earlier.version].reason


def _thought(reply: Reply) -> bool:
    message = reply.line[reply.at]
    raw = reply.call.extra.get("raw")
    return any(message.get(field) for field in REASONING_FIELDS) or "<think>" in (raw if isinstance(raw, str) else "")
