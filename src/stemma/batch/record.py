"""What is known of a task, kept as the metadata of its conversation: a fold over the facts of the loop.

The record is saved in the same transaction as the graph, so the two never disagree: what a crash took from one it took
from the other. Whether a tool succeeded is what the tool itself said. `tests/batch/test_record.py` proves it.

    >>> from stemma.agent.facts import Stopped
    >>> noted(Record(key="k", turns_said=1), Stopped("answer")).status
    'completed'
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from stemma.agent.facts import FAILURES, Compacted, Fact, Replied, Stopped, ToolRan
from stemma.core.call import Call
from stemma.formats.entries import ToolUse
from stemma.redact import NOTHING_SECRET, Redactor

Status = Literal["running", "completed", "stopped", "failed"]
"""running: not at its end, now or since somebody interrupted it. completed: it has an answer to every prompt.
stopped: a limit or an empty reply ended it. failed: the model could not be reached, a tool call could not be run, or
something broke; tried again."""


ENDED = ("completed", "stopped")
"""What is not taken up again."""


class Failure(msgspec.Struct, frozen=True):
    """Why a task failed."""

    kind: str
    """The class of the error."""
    text: str


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task."""

    key: str
    """The hash of the row's content."""
    ordinal: int = 0
    """Which of the equal rows it is."""
    sample: int = 0
    recipe: str = ""
    """The hash of all that affects sampling."""
    prompt_index: int = 0
    id: str | None = None
    metadata: dict[str, Any] = {}
    toolsets: list[str] = []
    """Toolsets that were offered."""
    offered: list[str] = []
    """Tools that were offered."""
    params: dict[str, Any] = {}
    """Sampling parameters of this task alone, its seed among them."""

    status: Status = "running"
    stop: str | None = None
    """Why it ended."""
    failure: Failure | None = None
    attempts: int = 0
    """How often it was begun or taken up again."""
    turns_said: int = 0
    """How many of the row's turns are in the conversation."""
    turns_answered: int = 0
    api_calls: int = 0
    with_reasoning: int = 0
    """How many replies came with reasoning."""
    usage: dict[str, int] = {}
    cost: float | None = None
    latencies: list[float] = []
    """Seconds of each model call."""
    tools: dict[str, ToolUse] = {}
    seconds: float = 0.0
    """Time spent on it, over all attempts."""
    finished: float | None = None
    """When, in seconds since the epoch."""
    reward: float | None = None
    scores: dict[str, Any] = {}
    """What else the reward function said."""
    reward_failure: Failure | None = None
    export_failure: Failure | None = None
    """Why no entry could be made of it."""

    @property
    def name(self) -> str:
        """The conversation's name in the store."""
        return task_name(self.key, self.ordinal, self.sample)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do for it; a failed one is tried again."""
        return self.status in ENDED

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Its place among the tasks of its run, in every file."""
        return (self.prompt_index, self.ordinal, self.sample, self.key)


def task_name(key: str, ordinal: int, sample: int) -> str:
    """How a task's conversation is called."""
    return f"{key}-{ordinal}-{sample}"


def read_record(metadata: Mapping[str, Any]) -> Record:
    """The record that a conversation's metadata is."""
    return msgspec.convert(dict(metadata), Record)


def as_metadata(record: Record) -> dict[str, Any]:
    """The record as a store keeps it."""
    made: dict[str, Any] = msgspec.to_builtins(record)
    return made


def noted(record: Record, fact: Fact) -> Record:
    """The record after one more fact."""
    match fact:
        case Replied(reply):
            return _with_calls(record, [reply.call], with_reasoning=bool(reply.message.get("reasoning")))
        case Compacted():
            return _with_calls(record, [fact.summary.call], with_reasoning=bool(fact.summary.message.get("reasoning")))
        case ToolRan():
            return _with_tool(record, fact)
        case Stopped():
            return _stopped(record, fact)
    return record


def _with_calls(record: Record, calls: Iterable[Call], *, with_reasoning: bool = False) -> Record:
    usage, cost, latencies, number = dict(record.usage), record.cost, list(record.latencies), 0
    for call in calls:
        number += 1
        for key, value in call.usage.items():
            if type(value) is int:
                usage[key] = usage.get(key, 0) + value
        if call.cost is not None:
            cost = min((cost or 0.0) + call.cost, sys.float_info.max)  # no JSON holds infinity
        latencies.append(round(call.seconds or 0.0, 4))
    return msgspec.structs.replace(
        record,
        api_calls=record.api_calls + number,
        with_reasoning=record.with_reasoning + with_reasoning,
        usage=usage,
        cost=cost,
        latencies=latencies,
    )


def _with_tool(record: Record, ran: ToolRan) -> Record:
    used = record.tools.get(ran.name, ToolUse())
    ok = ran.result.ok
    used = ToolUse(used.count + 1, used.success + ok, used.failure + (not ok))
    record = msgspec.structs.replace(record, tools={**record.tools, ran.name: used})
    below = [s.call for child in ran.result.children for member in child.reach() for s in member.calls()]
    return _with_calls(record, below) if below else record


def _stopped(record: Record, stopped: Stopped) -> Record:
    """How a turn's end is a task's: the last answer completes it, an interruption leaves it running."""
    if stopped.reason == "interrupted":
        return record
    if stopped.completed:
        return msgspec.structs.replace(
            record, status="completed", stop="answer", turns_answered=record.turns_said, failure=None
        )
    if stopped.reason in FAILURES:
        kind, _, text = stopped.detail.partition(": ")
        return failed(record, Failure(kind, text), stopped.reason)
    return msgspec.structs.replace(record, status="stopped", stop=stopped.reason, failure=None)


def failed(record: Record, failure: Failure, stop: str = "model error") -> Record:
    """The record of a task that something broke."""
    return msgspec.structs.replace(record, status="failed", stop=stop, failure=failure)


def failure_of(problem: BaseException, redactor: Redactor = NOTHING_SECRET) -> Failure:
    """What to keep of an exception."""
    return Failure(type(problem).__name__, redactor.text(str(problem)) or "no more is known")
