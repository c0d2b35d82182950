"""What a very small model is told so that it uses tools sensibly: a short system prompt with worked examples.

A model of 135M parameters does as the text before it did. So its system prompt shows it a few finished questions, in
the form in which it sees its own. They are ordinary text of the line: recorded, part of every prompt, nothing hidden.
Offer such a model one tool, or two, and examples of just those: it takes the tool it has seen last.

    >>> hi = Example(ask="Hi?", thought="I greet.", tool="greet", arguments={}, result="Hi", answer="Hi!")
    >>> print(small_system([hi]))
    You are a careful assistant. Think in one line. Use a tool, then answer in one short sentence.
    <BLANKLINE>
    user
    Hi?
    assistant
    <think>
    I greet.
    </think>
    <tool_call>
    {"name": "greet", "arguments": {}}
    </tool_call>
    tool
    <tool_response>
    {"tool_call_id": "call_2_0", "name": "greet", "content": "Hi"}
    </tool_response>
    assistant
    <think>
    Hi!
    </think>
    Hi!

The examples think what they then answer, because repeating is what a model of that size does best.
`tests/models/test_local.py` runs a conversation with them.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from stemma.formats.hermes import to_trajectory

_INSTRUCTION = "You are a careful assistant. Think in one line. Use a tool, then answer in one short sentence."
_CALL_ID = "call_2_0"
"""What the first call of a conversation is called."""
_SPEAKERS = {"human": "user", "gpt": "assistant", "tool": "tool"}


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
        ask="Where is the party? Look in party.txt.",
        thought="I read party.txt.",
        tool="read_file",
        arguments={"path": "party.txt"},
        result="1\tThe party is in Berlin.",
        answer="The file says: The party is in Berlin.",
    ),
    Example(
        ask="What does plan.txt say?",
        thought="I read plan.txt.",
        tool="read_file",
        arguments={"path": "plan.txt"},
        result="1\tBuy bread\n2\tCall Tom",
        answer="The file says: Buy bread, Call Tom.",
    ),
    Example(
        ask="Write 'see you soon' to bye.txt.",
        thought="I write 'see you soon' to bye.txt.",
        tool="write_file",
        arguments={"path": "bye.txt", "content": "see you soon"},
        result="wrote 12 bytes to bye.txt",
        answer="The file is written: wrote 12 bytes to bye.txt.",
    ),
    Example(
        ask="Write 'blue' to color.txt.",
        thought="I write 'blue' to color.txt.",
        tool="write_file",
        arguments={"path": "color.txt", "content": "blue"},
        result="wrote 4 bytes to color.txt",
        answer="The file is written: wrote 4 bytes to color.txt.",
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


def examples_for(tool: str) -> list[Example]:
    """The examples that use `tool`."""
    return [example for example in EXAMPLES if example.tool == tool]


def small_system(examples: Iterable[Example]) -> str:
    """The system prompt with these examples worked out."""
    return "\n\n".join([_INSTRUCTION, *map(_written, examples)])


def _written(example: Example) -> str:
    call = {
        "id": _CALL_ID,
        "function": {"name": example.tool, "arguments": msgspec.json.encode(example.arguments).decode()},
    }
    messages = [
        {"role": "user", "content": example.ask},
        {"role": "assistant", "content": None, "reasoning": example.thought, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": _CALL_ID, "content": example.result},
        {"role": "assistant", "content": example.answer, "reasoning": example.answer},
    ]
    return "\n".join(f"{_SPEAKERS[turn['from']]}\n{turn['value']}" for turn in to_trajectory(messages)[1:])
