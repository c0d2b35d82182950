"""Ids come back or are made up; rows that others wrote are read; dialect and tools show."""

import json
import pickle

import pytest

from stemma.errors import BadTrajectory
from stemma.formats.from_hermes import from_trajectory, read_trajectory
from stemma.formats.hermes import sharegpt_entry, to_trajectory

TOOLS = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}]

# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def gpt(*names, text="", think="<think>\n</think>\n"):
    calls = [f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>' for name in names]
    return {"from": "gpt", "value": think + "\n".join([*([text] if text else []), *calls])}


def tool(*said):
    bodies = [f"<tool_response>\n{one if isinstance(one, str) else json.dumps(one)}\n</tool_response>" for one in said]
    return {"from": "tool", "value": "\n".join(bodies)}


def said(call_id, name, content="r"):
    return {"tool_call_id": call_id, "name": name, "content": content}


def call_ids(read):
    return [call["id"] for message in read for call in message.get("tool_calls", ())]


def result_ids(read):
    return [message.get("tool_call_id") for message in read if message["role"] == "tool"]


def test_calls_get_the_ids_of_the_results_with_their_names():
    read = from_trajectory([gpt("f", "g", "f"), tool(said("x", "g"), said("y", "f"), said("z", "f"))])
    assert call_ids(read) == ["y", "x", "z"]
    assert result_ids(read) == ["x", "y", "z"]


def test_an_id_that_a_provider_repeats_goes_to_the_calls_opposite_its_results():
    read = from_trajectory([gpt("g", "f", "f"), tool(said("x", "g"), said("x", "f"), said("x", "f"))])
    assert call_ids(read) == ["x", "x", "x"]


def test_calls_without_results_get_ids_that_nobody_else_has():
    read = from_trajectory([gpt("f", "g"), tool(said("call_0", "g")), gpt("f"), gpt("f"), tool(said("call_2", "f"))])
    assert call_ids(read) == ["call_1", "call_0", "call_3", "call_2"]


def test_in_the_older_dialect_results_belong_to_calls_in_order():
    read = from_trajectory(
        [gpt("f", "g", think=""), tool("one"), tool("two"), tool("three"), gpt("h", think=""), tool("4")]
    )
    assert call_ids(read) == ["call_0", "call_1", "call_2"]
    assert result_ids(read) == ["call_0", "call_1", None, "call_2"]
    assert [message["content"] for message in read if message["role"] == "tool"] == ["one", "two", "three", "4"]


# ── what others wrote ────────────────────────────────────────────────────────────────────────────────────────────


def test_think_blocks_may_be_missing_or_several():
    read = from_trajectory(
        [
            {"from": "gpt", "value": "plain"},
            {"from": "gpt", "value": "<think>\na\n</think>\n<think>b</think>c"},
            {"from": "gpt", "value": "<think>inline</think>answer"},
            {"from": "gpt", "value": "<think>never closed"},
        ]
    )
    assert read == [
        {"role": "assistant", "content": "plain"},
        {"role": "assistant", "content": "<think>b</think>c", "reasoning": "a"},
        {"role": "assistant", "content": "<think>inline</think>answer"},
        {"role": "assistant", "content": "<think>never closed"},
    ]


def test_calls_are_found_anywhere_and_however_they_are_spaced():
    value = (
        'A <tool_call>{"arguments":{"x":1.0},"name":"f"}</tool_call>\nB\n<tool_call>\n\n{"name":"g"}\n\n</tool_call>\n'
    )
    [read] = from_trajectory([{"from": "assistant", "value": value}])
    assert [call["function"] for call in read["tool_calls"]] == [
        {"name": "f", "arguments": '{"x":1.0}'},
        {"name": "g", "arguments": "{}"},
    ]
    assert read["content"] == "A B"


@pytest.mark.parametrize(
    "value",
    [
        "<tool_call>\nnot json\n</tool_call>",
        '<tool_call>\n{"name": "f"}',
        '<tool_call>\n{"name": "f"} and more</tool_call>',
        "<tool_call>\n[1]\n</tool_call>",
        '<tool_call>\n{"name": 3}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": NaN}\n</tool_call>',
        "<tool_call>" + "[" * 100_000,
        '<think>I could <tool_call>\n{"name": "f"}\n</tool_call></think>but I do not',
    ],
)
def test_what_is_tagged_as_a_call_and_is_none_stays_text(value):
    assert from_trajectory([{"from": "gpt", "value": value}]) == [{"role": "assistant", "content": value}]


def test_a_broken_call_before_a_good_one_stays_text():
    [read] = from_trajectory([gpt("f", text="<tool_call>\noops\n</tool_call>", think="")])
    assert read["content"] == "<tool_call>\noops\n</tool_call>"
    assert len(read["tool_calls"]) == 1


def test_an_id_inside_a_call_is_kept():
    value = '<tool_call>\n{"id": "mine", "name": "f", "arguments": {}}\n</tool_call>'
    assert call_ids(from_trajectory([{"from": "gpt", "value": value}, tool("r")])) == ["mine"]


def test_results_of_several_calls_in_one_raw_turn_are_told_apart():
    read = from_trajectory([gpt("f", "g", think=""), tool("one", "two")])
    assert [message["content"] for message in read[1:]] == ["one", "two"]
    assert result_ids(read) == call_ids(read)
    lone = from_trajectory([gpt("f", think=""), tool("one", "two")])
    assert [message["content"] for message in lone[1:]] == ["one\n</tool_response>\n<tool_response>\ntwo"]


def test_envelopes_without_an_id_belong_to_the_calls_in_order():
    read = from_trajectory([gpt("f", "g"), tool({"name": "f", "content": {"a": 1}}, {"name": "g", "content": "b"})])
    assert [message["content"] for message in read[1:]] == ['{"a": 1}', "b"]
    assert result_ids(read) == call_ids(read)


def test_envelopes_that_the_incumbent_wrote_with_nan_are_read():
    read = from_trajectory([gpt("f"), tool('{"tool_call_id": "a", "name": "f", "content": {"k": NaN}}')])
    assert read[1] == {"role": "tool", "tool_call_id": "a", "content": '{"k": NaN}'}


def test_a_tool_turn_without_tags_is_raw():
    read = from_trajectory([gpt("f", think=""), {"from": "observation", "value": "bare"}])
    assert read[1]["content"] == "bare"


def test_a_notice_after_the_generated_prompt_is_a_system_message():
    turns = to_trajectory([{"role": "user", "content": "q"}], TOOLS)
    turns[0]["value"] += "\n\nSome of your previous tool responses may be summarized to preserve context."
    read = read_trajectory(turns)
    assert read.tools == TOOLS
    assert read.messages[0]["role"] == "system"
    assert read.messages[0]["content"].startswith("Some of your previous")


def test_a_list_that_the_incumbent_left_as_a_value_is_read_as_parts():
    parts = [{"type": "text", "text": "q"}]
    assert from_trajectory([{"from": "human", "value": parts}]) == [{"role": "user", "content": parts}]
    assert from_trajectory([{"from": "human", "value": None}]) == [{"role": "user", "content": ""}]


# ── the dialect, the tools ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "style"),
    [
        (to_trajectory([]), "hermes"),
        ({"conversations": to_trajectory([]), "tools": "[]", "source": "x"}, "hermes"),
        ([gpt(text="a")], "hermes"),
        ([gpt("f", think=""), tool(said("a", "f"))], "hermes"),
        ({"conversations": [gpt("f", think=""), tool(said("a", "f"))], "source": "x"}, "sharegpt"),
        ([gpt("f", think=""), tool('{"results": []}')], "sharegpt"),
        ([gpt("f", think=""), tool("text")], "sharegpt"),
        ([{"from": "system", "value": "You are"}, {"from": "human", "value": "q"}], "sharegpt"),
        ([], "sharegpt"),
    ],
)
def test_the_dialect_shows(row, style):
    assert read_trajectory(row).style == style


def test_tools_are_read_from_either_place():
    assert read_trajectory(sharegpt_entry([], TOOLS)).tools == TOOLS
    assert read_trajectory({"conversations": [], "tools": TOOLS}).tools == TOOLS
    assert read_trajectory({"conversations": [], "tools": '[{"name": "f", "required": null}]'}).tools == [
        {"type": "function", "function": {"name": "f"}}
    ]
    assert read_trajectory([]).tools == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "`conversations` is a list of turns, not NoneType"),
        ("text", "`conversations` is a list of turns, not str"),
        ([{"from": "human"}], "turn 0 is not a dict with `from` and `value`"),
        ([{"from": "human", "value": "q"}, {"from": "critic", "value": "x"}], "turn 1 is from 'critic'"),
        ([{"from": "gpt", "value": 3}], "turn 0 has a int for its value"),
        ({"conversations": [], "tools": "[oops"}, "the tools of the row are not JSON"),
        ({"conversations": [], "tools": '{"a": 1}'}, "the tools of the row are not a list of dicts"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_by_its_turn(row, message):
    with pytest.raises(BadTrajectory) as refused:
        from_trajectory(row)
    assert message in str(refused.value)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_an_unknown_style_is_refused():
    with pytest.raises(BadTrajectory, match="'alpaca'"):
        from_trajectory([], style="alpaca")
