"""Making room: when the context nears the model's window, its middle becomes a summary.

The model is asked for the summary in the full context, so that call is sampled, recorded and trainable like any other.
The shortening itself is an edit of the graph (`reason="compaction"`): the earlier line stays, with all its calls. A
tool call is never parted from its results. `tests/agent/test_compaction.py` proves it.

    S U a t a t a U a    →    S U Σ U a        head: system and first user turn; tail: whole turns that still fit
"""

from typing import Any

import msgspec

from stemma.core.call import Call

INSTRUCTION = (
    "Our context is nearly full. Write a summary that lets you go on from it alone: the goal, what has been done "
    "and found (with exact names, paths, commands and numbers), what failed, and what remains. "
    "Answer with the summary only."
)
PREFIX = "[CONTEXT SUMMARY]: "


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """When to shorten, and what to keep."""

    threshold: float = 0.8
    """The share of the window at which to begin."""
    keep_last: int = 6
    """How many messages at the end stay as they are, at least."""


class Cut(msgspec.Struct, frozen=True):
    """`messages[start:stop]` is to become a summary."""

    start: int
    stop: int


def is_due(compaction: Compaction, window: int, last: Call, waiting: list[dict[str, Any]]) -> bool:
    """Whether the next question would near the window: the last prompt and reply, and what has come since."""
    used = last.usage.get("total_tokens") or 0
    return used + sum(map(estimated_tokens, waiting)) >= compaction.threshold * window


def estimated_tokens(message: dict[str, Any]) -> int:
    """A rough count where no tokenizer is at hand: four characters a token."""
    return 4 + len(str(message.get("content") or "")) // 4


def plan(messages: list[dict[str, Any]], keep_last: int) -> Cut | None:
    """What to summarise, or None if nothing can be.

    >>> roles = ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    >>> plan([{"role": r} for r in roles], keep_last=3)
    Cut(start=2, stop=4)
    """
    start = next((i + 1 for i, m in enumerate(messages) if m["role"] == "user"), len(messages))
    stop = max(start, len(messages) - keep_last)
    while stop > start and messages[stop : stop + 1] and messages[stop]["role"] == "tool":
        stop -= 1  # a result stays with the call before it
    return Cut(start, stop) if stop - start >= 2 else None


def summary_message(text: str) -> dict[str, Any]:
    """How the summary stands in the new line."""
    return {"role": "user", "content": text if text.startswith(PREFIX.strip()) else PREFIX + text}
