"""A training row before any trainer's format: messages, which of them are trained, and what was offered.

Rows come from graphs (`rows_of_graph`: the fewest lines that train every sampled message once) or from entries of
trajectory files (`row_of_entry`: `formats.reading` says which of its replies are trained). Nothing ephemeral is in
either: what a call saw beyond its line is kept with the call and never exported. A row with such a call does not show
what the model saw: it is marked `on_policy: false` in its metadata. `tests/formats/test_training.py` proves it.
"""

from collections.abc import Container, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from stemma.core.call import Call
from stemma.core.exclusions import is_ephemeral
from stemma.core.graph import MessageGraph
from stemma.errors import StemmaError
from stemma.formats.hermes import Turn, to_trajectory
from stemma.formats.reading import Kind, read_entry

RESERVED = "stemma"
"""The key of a graph's metadata that is ours; it is no column of the user's, and no export has it."""


class TrainingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation to train on."""

    id: str
    """The node id of its last message, or the file and line it was read from."""
    messages: list[dict[str, Any]]
    """API dicts, as they stand in the graph."""
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
    on_policy: bool = True
    """False if a trained message was sampled under an ephemeral prompt or prefill, which is not in the row."""
    known_turns: list[Turn] | None = None
    """The conversation as Hermes turns, once somebody has asked for it."""

    def turns(self) -> list[Turn]:
        """The conversation as Hermes turns; not to be changed."""
        if self.known_turns is None:
            force_setattr(self, "known_turns", to_trajectory(self.messages, self.tools))
        assert self.known_turns is not None
        return self.known_turns


class LeftOut(StemmaError):
    """A row that a format cannot carry, or that a policy keeps back: `reason` is counted, `detail` explains one."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


def rows_of_graph(
    graph: MessageGraph, metadata: Mapping[str, Any], but: Container[object] = ()
) -> Iterator[TrainingRow]:
    """A graph's rows, subagents' included, but for calls that another graph trains (`MessageGraph.rows`)."""
    for row in graph.rows(but):
        last, shown = row.calls[-1], not any(map(_saw_more, row.calls))
        about = {key: value for key, value in metadata.items() if key != RESERVED}
        yield TrainingRow(
            id=row.tip,
            messages=row.messages,
            trained=row.trained,
            tools=row.tools,
            model=last.model,
            timestamp=_when(last),
            completed=last.extra.get("completed", answers(row.messages[-1], last.finish_reason)),
            metadata=about if shown else {**about, "on_policy": False},
            on_policy=shown,
        )


def row_of_entry(entry: Mapping[str, Any], name: str, kind: Kind | None = None) -> TrainingRow:
    """The row of an entry of a dataset file (Hermes or ShareGPT turns, or OpenAI messages)."""
    read = read_entry(entry, kind)
    completed = bool(read.messages) and answers(read.messages[-1], read.finish_reason)
    return TrainingRow(
        id=name,
        messages=read.messages,
        trained=read.trained,
        tools=read.tools,
        model=read.model,
        timestamp=read.timestamp,
        completed=completed if read.completed is None else read.completed,
        metadata=read.columns if read.on_policy else {**read.columns, "on_policy": False},
        on_policy=read.on_policy,
    )


def _saw_more(call: Call) -> bool:
    """Whether a call saw something else than its context, as far as it or the file that it came from says."""
    return is_ephemeral(call) or call.extra.get("on_policy") is False


def answers(message: Mapping[str, Any], finish_reason: str | None) -> bool:
    """Whether a message that ended for this reason completes its conversation."""
    return is_answer(message) and finish_reason in (None, "stop")


def is_answer(message: Mapping[str, Any]) -> bool:
    """Whether a message is a real final answer: the model's, with something in it, and no call left open."""
    content = message.get("content")
    said = content.strip() if isinstance(content, str) else content
    return message.get("role") == "assistant" and not message.get("tool_calls") and bool(said) and said != "(empty)"


def _when(call: Call) -> str:
    if isinstance(said := call.extra.get("timestamp"), str):  # as the file that it was imported from says it
        return said
    if call.started is None:
        return ""
    return datetime.fromtimestamp(call.started, UTC).isoformat(timespec="microseconds")
