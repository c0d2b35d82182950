"""A training row before any trainer's format: messages, which of them are trained, and how each of those was sampled.

Rows come from graphs (`rows_of_graph`: the fewest lines that train every sampled message once) or from entries of
trajectory files (`row_of_entry`; `formats/reading.py` says which of its replies are trained). Messages are plain chat
messages: content blocks of other APIs are mapped here, once (`formats/shapes.py`). Nothing ephemeral is in a row: what
a call saw beyond its line is kept with the call and never exported, and the reply is marked as off-policy. A reply that
must not be trained, whatever the format, is given as an `Excluded`. `tests/formats/test_training.py` proves it.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeGuard

import msgspec
from msgspec.structs import force_setattr

from stemma.core.call import Call
from stemma.core.exclusions import is_ephemeral, refused
from stemma.core.graph import MessageGraph
from stemma.core.ids import ROOT, Id, call_id
from stemma.core.message import Message
from stemma.core.rows import Reply, plan
from stemma.core.sampler import sampler_of
from stemma.errors import StemmaError
from stemma.formats.hermes import Turn, to_trajectory
from stemma.formats.reading import Entry, Kind, read_entry
from stemma.formats.shapes import chat_messages

RESERVED = "stemma"
"""The key of a graph's metadata that is ours; it is no column of the user's, and no export has it."""
EPHEMERAL = "ephemeral prompt left out"
IMPORTED = "imported, not recorded"
CUT = "end added to a truncated reply"
"""Why a reply is off-policy."""


class TextRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls an export of text trains."""

    model: str | None = None
    """Only calls of this model; None takes all."""
    keep_truncated: bool = False
    """Also replies that were cut off: a trainer ends them with a token that nobody sampled."""

    def why_not(self, call: Call) -> tuple[str, str] | None:
        """The reason why a call is not trained, and a detail; None if it is."""
        if why := refused(call):
            return why
        if self.model is not None and call.model != self.model:
            return "other model", call.model
        if call.finish_reason == "length" and not self.keep_truncated:
            return "truncated", "it ended with finish_reason 'length'; --keep-truncated trains such replies"
        if call.finish_reason == "content_filter":
            return "content filter", "the provider has taken something out of it"
        return None


class Sampled(msgspec.Struct, frozen=True, eq=False):
    """A trained message: where it stands, and the call that sampled it."""

    at: int
    """Its index among the row's messages."""
    call: Call
    event: bytes
    """What tells the call from one alike in everything."""

    @property
    def off_policy(self) -> str:
        """Why the reply is not what the model would say after what the row shows; empty if it is."""
        if is_ephemeral(self.call):
            return EPHEMERAL
        if self.call.extra.get("imported"):  # nothing is known of how it was sampled but what its file says
            said = self.call.extra.get("on_policy")
            return "" if said else IMPORTED if said is None else "imported as off-policy"
        if self.call.finish_reason == "length":
            return CUT
        sampler = sampler_of(self.call)
        if sampler.constrained:
            return "sampled under a constraint"
        return f"sampled with {', '.join(sampler.adjusted)}" if sampler.adjusted else ""

    @property
    def timestamp(self) -> str:
        """When it was sampled, ISO 8601; empty if nobody wrote it down."""
        if isinstance(said := self.call.extra.get("timestamp"), str):  # as the file it was imported from says it
            return said
        if self.call.started is None:
            return ""
        return datetime.fromtimestamp(self.call.started, UTC).isoformat(timespec="microseconds")


class Recorded(msgspec.Struct, frozen=True, eq=False):
    """The recorded messages that a row was made of; none if it was read from a file."""

    line: Sequence[Message] = ()
    nodes: Sequence[Id] = ()
    """The id of each node."""
    origin: Sequence[int] | None = None
    """For each message of the row the one it was made of; None if they are the same."""

    def place(self, at: int) -> int:
        """The recorded message behind message `at` of the row."""
        return at if self.origin is None else self.origin[at]

    def saw(self, at: int) -> Id:
        """The node before message `at` of the row."""
        place = self.place(at)
        return self.nodes[place - 1] if place else ROOT

    def made(self, at: int) -> Id:
        """The node of message `at` of the row."""
        return self.nodes[self.place(at)]


class TrainingRow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One conversation to train on."""

    id: str
    """The node id of its last message, or the file and line it was read from."""
    messages: list[dict[str, Any]]
    """Chat messages."""
    trained: tuple[int, ...]
    """Which of them are trained: sampled messages; all others are context."""
    tools: list[dict[str, Any]] | None = None
    """The tools that were offered."""
    model: str = ""
    """Who sampled the last trained message."""
    timestamp: str = ""
    """When that was, ISO 8601; empty if nobody wrote it down."""
    completed: bool = False
    """Whether the conversation ends in a real answer."""
    metadata: dict[str, Any] = {}
    name: str = ""
    """The conversation it belongs to; its id, if that has no name."""
    calls: tuple[Sampled, ...] = ()
    """How each trained message was sampled; made up of `model` where nothing else is known."""
    source: Recorded = Recorded()
    """What was recorded."""
    known_turns: list[Turn] | None = None
    """The conversation as Hermes turns, once somebody has asked for it."""

    @property
    def rollout(self) -> str:
        """The conversation it belongs to."""
        return self.name or self.id

    @cached_property
    def replies(self) -> tuple[Sampled, ...]:
        """How each trained message was sampled."""
        if self.calls or not self.trained:
            return self.calls
        call = Call(model=self.model or "imported", tools=self.tools)
        return tuple(Sampled(at, call, f"{self.id}/{at}".encode()) for at in self.trained)

    def turns(self) -> list[Turn]:
        """The conversation as Hermes turns; not to be changed."""
        if self.known_turns is None:
            force_setattr(self, "known_turns", to_trajectory(self.messages, self.tools))
        assert self.known_turns is not None
        return self.known_turns

    def cut(self, trained: Sequence[int]) -> "TrainingRow":
        """The row that trains only these of its replies (numbers of `trained`), ending with the last of them."""
        if len(trained) == len(self.trained) and (not trained or self.trained[-1] == len(self.messages) - 1):
            return self
        replies = tuple(self.replies[n] for n in trained)
        end = replies[-1].at + 1 if replies else 0
        whole = end == len(self.messages)
        return TrainingRow(
            id=self.id if whole or not self.source.line else self.source.made(end - 1).hex(),
            messages=self.messages[:end],
            trained=tuple(reply.at for reply in replies),
            tools=self.tools,
            model=replies[-1].call.model if replies else "",
            timestamp=self.timestamp if whole else replies[-1].timestamp if replies else "",
            completed=self.completed
            if whole
            else bool(replies) and _completes(self.messages[end - 1], replies[-1].call),
            metadata=self.metadata,
            name=self.rollout,
            calls=replies,
            source=self.source,
        )


class LeftOut(StemmaError):
    """A row that a format cannot carry, or that a policy keeps back: `reason` is counted, `detail` explains one."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Excluded(msgspec.Struct, frozen=True, kw_only=True, tag="excluded"):
    """A reply that is not trained, as the receipts list it."""

    call: str
    """The id of its call; the row and the place of a reply that was read from a file."""
    rollout: str
    reason: str
    detail: str = ""
    made: str
    """The id of its node; empty if it was read from a file."""
    index: int
    """Its place in its line."""


def excluded(row: TrainingRow, reply: Sampled, reason: str, detail: str) -> Excluded:
    """A reply of a row that is not trained after all."""
    name, made, place = f"{row.id}/{reply.at}", b"", row.source.place(reply.at)
    if row.source.line:
        saw, made = row.source.saw(reply.at), row.source.made(reply.at)
        name = call_id(saw, made, reply.call.parts(), reply.event).hex()
    return Excluded(call=name, rollout=row.rollout, reason=reason, detail=detail, made=made.hex(), index=place)


def rows_of_graph(
    graph: MessageGraph,
    metadata: Mapping[str, Any],
    but: Container[object] = (),
    *,
    name: str = "",
    rules: TextRules | None = None,
) -> Iterator[TrainingRow | Excluded]:
    """A graph's rows, subagents' included, but for calls that another graph trains (`MessageGraph.rows`)."""
    planned = plan(graph, but, (rules or TextRules()).why_not)
    about = {key: value for key, value in metadata.items() if key != RESERVED}
    for reply, reason, detail in planned.excluded:
        yield _excluded(name, reply, reason, detail)
    for replies in planned.chains:
        yield _row(name, about, replies)


def _row(name: str, metadata: dict[str, Any], replies: list[Reply]) -> TrainingRow:
    last = replies[0]
    line, nodes = last.line[: last.at + 1], last.nodes[: last.at + 1]
    recorded = [message.to_dict() for message in line]
    messages, origin = chat_messages(recorded)
    mapped = messages is not recorded
    place = {at: n for n, at in enumerate(origin) if messages[n].get("role") == "assistant"} if mapped else {}
    calls = [
        Sampled(place[reply.at] if mapped else reply.at, reply.call, _event(name, reply)) for reply in reversed(replies)
    ]
    return TrainingRow(
        id=nodes[-1].hex(),
        messages=messages,
        trained=tuple(call.at for call in calls),
        tools=last.call.tools,
        model=last.call.model,
        timestamp=calls[-1].timestamp,
        completed=_completes(messages[-1], last.call),
        metadata=metadata,
        name=name,
        calls=tuple(calls),
        source=Recorded(line, nodes, origin if mapped else None),
    )


def _completes(message: Mapping[str, Any], call: Call) -> bool:
    completed = call.extra.get("completed")  # as the file that it was imported from says it
    return completed if isinstance(completed, bool) else answers(message, call.finish_reason)


def _event(name: str, reply: Reply) -> bytes:
    return reply.event or f"{name}/{reply.number}".encode()


def _excluded(name: str, reply: Reply, reason: str, detail: str) -> Excluded:
    saw, made = reply.nodes[reply.at - 1] if reply.at else ROOT, reply.nodes[reply.at]
    call = call_id(saw, made, reply.call.parts(), _event(name, reply)).hex()
    return Excluded(call=call, rollout=name, reason=reason, detail=detail, made=made.hex(), index=reply.at)


def row_of_entry(entry: Mapping[str, Any], name: str, kind: Kind | None = None) -> TrainingRow:
    """The row of an entry of a dataset file (Hermes or ShareGPT turns, or OpenAI messages)."""
    (row,) = (row for row in rows_of_entry(entry, name, TextRules(keep_truncated=True), kind) if _is_row(row))
    return row


def _is_row(found: TrainingRow | Excluded) -> TypeGuard[TrainingRow]:
    return isinstance(found, TrainingRow)


def rows_of_entry(
    entry: Mapping[str, Any], name: str, rules: TextRules, kind: Kind | None = None
) -> Iterator[TrainingRow | Excluded]:
    """The same under some rules: replies that they leave out come first."""
    read = read_entry(entry, kind)
    messages, origin = chat_messages(read.messages)
    mapped = messages is not read.messages
    place = {at: n for n, at in enumerate(origin) if messages[n].get("role") == "assistant"} if mapped else {}
    call, last = calls_of_entry(read)
    calls = [Sampled(place.get(at, at), call, f"{name}/{at}".encode()) for at in read.trained]
    if calls:
        calls[-1] = Sampled(calls[-1].at, last, calls[-1].event)
    row = TrainingRow(
        id=name,
        messages=messages,
        trained=tuple(call.at for call in calls),
        tools=read.tools,
        model=read.model,
        timestamp=read.timestamp,
        completed=bool(calls) and _completes(messages[calls[-1].at], last),
        metadata=read.columns,
        calls=tuple(calls),
        source=Recorded(origin=origin if mapped else None),
    )
    whys = [rules.why_not(reply.call) for reply in row.replies]
    for reply, why in zip(row.replies, whys, strict=True):
        if why:
            yield excluded(row, reply, *why)
    kept = [n for n, why in enumerate(whys) if not why]
    if kept or not whys:
        yield row.cut(kept) if len(kept) < len(whys) else row


def calls_of_entry(read: Entry) -> tuple[Call, Call]:
    """The call that sampled the trained replies of an entry, and the one of the last, of which the entry tells more."""
    extra: dict[str, Any] = {"imported": True}
    if read.on_policy is not None:
        extra["on_policy"] = read.on_policy
    call = Call(model=read.model or "imported", tools=read.tools, extra=extra)
    more: dict[str, Any] = {"timestamp": read.timestamp} if read.timestamp else {}
    if read.trained and read.completed is not None:
        shown = answers(read.messages[read.trained[-1]], read.finish_reason)
        more |= {"completed": read.completed} if read.completed is not shown else {}
    if not more and read.finish_reason is None:
        return call, call
    return call, msgspec.structs.replace(call, finish_reason=read.finish_reason, extra={**extra, **more})


def answers(message: Mapping[str, Any], finish_reason: str | None) -> bool:
    """Whether a message that ended for this reason completes its conversation."""
    return is_answer(message) and finish_reason in (None, "stop")


def is_answer(message: Mapping[str, Any]) -> bool:
    """Whether a message is a real final answer: the model's, with something in it, and no call left open."""
    content = message.get("content")
    said = content.strip() if isinstance(content, str) else content
    return message.get("role") == "assistant" and not message.get("tool_calls") and bool(said) and said != "(empty)"
