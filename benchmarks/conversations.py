"""Conversations to measure with: the sizes of real ones, no two messages alike, the same in every run."""

import random
from collections.abc import Iterator
from typing import Any

from stemma import Call, MessageGraph

Message = dict[str, Any]

_WORDS = "the of to in file test run error value line reads then first path model token tool naïve Größe 変更 failed"
_TEXT = " ".join(random.Random(7).choices(_WORDS.split(), k=40_000))

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name}: see the manual of the workspace for what it accepts and what it returns.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
    for name in ("read_file", "write_file", "terminal", "search")
]


def text(number: int, length: int = 100) -> str:
    """`length` characters that no other `number` has."""
    start = number * 7919 % (len(_TEXT) - length)
    return f"{number} {_TEXT[start : start + length]}"[:length]


def alternating(count: int, first: int = 0) -> list[Message]:
    """A system message, then user and assistant in turn."""
    roles = ("assistant", "user")
    return [{"role": roles[i % 2] if i else "system", "content": text(first + i)} for i in range(count)]


def call(number: int) -> Call:
    """A model call as an OpenAI-compatible endpoint describes it."""
    return Call(
        model="small-instruct-2507",
        tools=TOOLS,
        params={"temperature": 0.7, "max_tokens": 2048},
        finish_reason="stop",
        usage={"prompt_tokens": 900 + number % 4000, "completion_tokens": 40 + number % 300},
        started=1_750_000_000.25 + number,
        seconds=1.5 + number % 10 / 8,
    )


def tool_turn(number: int) -> Iterator[tuple[Message, Call | None]]:
    """Four messages: a question, a tool call, its result, an answer; sampled ones with their call."""
    name = f"call_{number:08x}"
    function = {"name": "read_file", "arguments": f'{{"path": "src/part_{number}.py"}}'}
    asked = {"id": name, "type": "function", "function": function}
    yield {"role": "user", "content": text(4 * number, 200)}, None
    yield {"role": "assistant", "content": None, "tool_calls": [asked]}, call(2 * number)
    yield {"role": "tool", "tool_call_id": name, "content": text(4 * number + 2, 400)}, None
    yield {"role": "assistant", "content": text(4 * number + 3, 300)}, call(2 * number + 1)


def grow(graph: MessageGraph, number: int) -> None:
    """Add `tool_turn(number)` to a graph."""
    for message, sampled in tool_turn(number):
        if sampled is None:
            graph.append(message)
        else:
            graph.record(message, sampled)
