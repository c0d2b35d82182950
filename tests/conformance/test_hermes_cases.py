"""Trajectories recorded from hermes-agent 0.19 are what `to_trajectory` writes, byte for byte."""

import json
from pathlib import Path

import pytest

from stemma.formats.from_hermes import read_trajectory
from stemma.formats.hermes import to_trajectory

CASES = json.loads((Path(__file__).parent / "hermes_cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_recorded_messages_give_the_recorded_trajectory(case):
    made = to_trajectory(case["messages"], case["tools"])
    assert [turn["value"] for turn in made] == [turn["value"] for turn in case["expected"]]
    assert json.dumps(made) == json.dumps(case["expected"])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_recorded_trajectory_is_read_and_written_again_as_it_was(case):
    read = read_trajectory(case["expected"])
    assert read.style == "hermes"
    assert read.tools == case["tools"]
    assert to_trajectory(read.messages, read.tools) == case["expected"]


def test_the_example_of_the_format_document_is_written_as_it_stands_there():
    call = {"id": "call_abc123", "function": {"name": "terminal", "arguments": '{"command": "python3 --version"}'}}
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}}
    tool = {"name": "terminal", "description": "Execute shell commands", "parameters": parameters}
    made = to_trajectory(
        [
            {"role": "user", "content": "What Python version is installed?"},
            {"role": "assistant", "content": None, "reasoning": "I should run it.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_abc123", "content": "Python 3.11.6"},
            {"role": "assistant", "content": "Python 3.11.6 is installed on this system.", "reasoning": "Got it."},
        ],
        [{"type": "function", "function": tool}],
    )
    assert [turn["from"] for turn in made] == ["system", "human", "gpt", "tool", "gpt"]
    assert made[0]["value"].splitlines()[2] == (
        '[{"name": "terminal", "description": "Execute shell commands", "parameters": {"type": "object", '
        '"properties": {"command": {"type": "string"}}}, "required": null}]'
    )
    assert made[2]["value"] == (
        "<think>\nI should run it.\n</think>\n<tool_call>\n"
        '{"name": "terminal", "arguments": {"command": "python3 --version"}}\n</tool_call>'
    )
    assert made[3]["value"] == (
        '<tool_response>\n{"tool_call_id": "call_abc123", "name": "terminal", "content": "Python 3.11.6"}\n'
        "</tool_response>"
    )
    assert made[4]["value"] == "<think>\nGot it.\n</think>\nPython 3.11.6 is installed on this system."
