"""What the loop says while it works. It opens no files: whoever listens decides what to keep and what to show."""

from typing import Any, Literal

import msgspec

from stemma.models.protocol import Reply
from stemma.tools.tool import ToolResult

StopReason = Literal[
    "answer",
    "empty",
    "length",
    "turns",
    "tokens",
    "seconds",
    "cost",
    "context",
    "interrupted",
    "model error",
    "harness error",
]
"""answer: the model gave one. empty: it said nothing. length: its reply was cut. turns, tokens, seconds, cost: a limit.
context: what must be kept does not fit the model's window. interrupted: somebody stopped it. model error: no reply.
harness error: a tool call could not be run through no fault of the model; it is still open."""

FAILURES = ("model error", "harness error")
"""Reasons that are failures: nothing about the conversation itself ended it."""


class Asking(msgspec.Struct, frozen=True):
    """The model is about to be asked."""

    turn: int


class Replied(msgspec.Struct, frozen=True):
    """A reply was recorded."""

    reply: Reply


class ToolStarted(msgspec.Struct, frozen=True):
    """A tool is about to run."""

    call_id: str
    name: str
    arguments: Any


class ToolRan(msgspec.Struct, frozen=True):
    """A tool's result was appended."""

    call_id: str
    name: str
    result: ToolResult
    seconds: float


class Compacted(msgspec.Struct, frozen=True):
    """The context was shortened; the line before is kept as a version."""

    before: int
    """Messages before."""
    after: int
    summary: Reply


class Stopped(msgspec.Struct, frozen=True):
    """The last fact."""

    reason: StopReason
    detail: str = ""

    @property
    def completed(self) -> bool:
        """True only for a real final answer."""
        return self.reason == "answer"


Fact = Asking | Replied | ToolStarted | ToolRan | Compacted | Stopped
