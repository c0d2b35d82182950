"""What small models are told so that they use tools sensibly: a short system prompt, and worked examples.

A model of 135M parameters does as the conversation before it did. So it is shown a few finished questions as `prefill`:
it sees them, each call notes them, and no line or export has them. Offer such a model one tool or two, and examples of
just those: it takes the tool it has seen last.

    >>> [message["role"] for message in as_messages(EXAMPLES[:1])]
    ['user', 'assistant', 'tool', 'assistant']

The examples think what they then answer, because repeating is what a model of that size does best.
`tests/models/test_local.py` runs a conversation with them.
"""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

SMALL_SYSTEM = "You are a careful assistant. Think in one line. Use a tool, then answer in one short sentence."


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A question, finished with one tool call."""

    ask: str
    thought: str
    tool: str
    arguments: dict[str, Any]
    result: str
    answer: str


EXAMPLES = (
    Example(
        ask="What does plan.txt say?",
        thought="I read plan.txt.",
        tool="read_file",
        arguments={"path": "plan.txt"},
        result="1\tBuy bread\n2\tCall Tom",
        answer="The file says: Buy bread, Call Tom.",
    ),
    Example(
        ask="Where is the party? Look in party.txt.",
        thought="I read party.txt.",
        tool="read_file",
        arguments={"path": "party.txt"},
        result="1\tThe party is in Berlin.",
        answer="The file says: The party is in Berlin.",
    ),
    Example(
        ask="Write 'see you soon' to bye.txt.",
        thought="I write 'see you soon' to bye.txt.",
        tool="write_file",
        arguments={"path": "bye.txt", "content": "see you soon"},
        result="wrote 12 bytes to bye.txt",
        answer="I wrote 'see you soon' to bye.txt.",
    ),
    Example(
        ask="Run main.py with python3.",
        thought="I run: python3 main.py",
        tool="terminal",
        arguments={"command": "python3 main.py"},
        result="done",
        answer="The output is: done.",
    ),
    Example(
        ask="How many words are in plan.txt?",
        thought="I run: wc -w plan.txt",
        tool="terminal",
        arguments={"command": "wc -w plan.txt"},
        result="4 plan.txt",
        answer="The output is: 4 plan.txt.",
    ),
    Example(
        ask="How many lines are in list.txt?",
        thought="I run: wc -l list.txt",
        tool="terminal",
        arguments={"command": "wc -l list.txt"},
        result="8 list.txt",
        answer="The output is: 8 list.txt.",
    ),
)
"""Examples for the tools that come with stemma."""


def examples_for(tool: str) -> list[dict[str, Any]]:
    """The messages of the examples that use `tool`."""
    return as_messages(example for example in EXAMPLES if example.tool == tool)


def as_messages(examples: Iterable[Example]) -> list[dict[str, Any]]:
    """The examples as a conversation."""
    return [message for number, example in enumerate(examples) for message in _messages(example, f"example_{number}")]


def _messages(example: Example, call_id: str) -> list[dict[str, Any]]:
    function = {"name": example.tool, "arguments": json.dumps(example.arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "user", "content": example.ask},
        {"role": "assistant", "content": None, "reasoning": example.thought, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "name": example.tool, "content": example.result},
        {"role": "assistant", "content": example.answer, "reasoning": example.answer},
    ]
