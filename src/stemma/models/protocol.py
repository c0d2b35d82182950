"""What the agent asks of a model, and what it gets back.

A reply is whole or absent: `reply` returns a message with the call that sampled it, or raises a `ModelError`; what
was streamed before a failure is not a reply. The message is normalised (`formats.api.normalise_reply`): reasoning in
its own field, argument strings as received; the text as it came stays with the call (`extra["raw"]`) where it
differs.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from stemma.core.call import Call


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model."""

    messages: list[dict[str, Any]]
    """The context exactly as it is to be sent, ephemeral prompts and prefill included."""
    tools: list[dict[str, Any]] | None = None
    """The tools offered, as the API takes them."""
    params: dict[str, Any] = {}
    """Sampling parameters, passed through: temperature, max_tokens, seed, …"""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One whole answer."""

    message: dict[str, Any]
    """The assistant message, normalised."""
    call: Call
    """How it was sampled: model, tools, params, finish reason, usage, timing, cost, tokens."""


class Delta(msgspec.Struct, frozen=True):
    """A piece of a reply while it streams; for eyes only."""

    kind: Literal["text", "reasoning", "tool", "again"]
    """`again`: what came so far was no reply after all (`text` says why), and it now comes anew."""
    text: str


OnDelta = Callable[[Delta], None]


class Model(Protocol):
    """Anything that answers."""

    name: str
    """What `Call.model` says."""
    context_window: int | None
    """How many tokens fit, if known; compaction begins before that."""

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """One answer, streamed to `on_delta` while it comes if given."""
        ...

    async def samples(self, request: Request, n: int) -> list[Reply]:
        """`n` answers to one question."""
        ...

    async def close(self) -> None:
        """Let go of connections and memory."""
        ...
