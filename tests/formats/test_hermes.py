"""Messages become the trajectory the format documents describe, and right where the incumbent is wrong."""

import json
import logging
import math

import pytest

from stemma.errors import BadMessage, BadTrajectory
from stemma.formats.hermes import (
    convert_scratchpad_to_think,
    has_raw_turn,
    sharegpt_entry,
    system_prompt,
    to_trajectory,
)

USER = {"role": "user", "content": "q"}


def call(call_id="a", name="f", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(content=None, **fields):
    return {"role": "assistant", "content": content, **fields}


def result(call_id, content="r"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def after_question(*said, style="hermes"):
    """The turns that follow the question."""
    turns = to_trajectory([USER, *said], style=style)
    return [(turn["from"], turn["value"]) for turn in turns[turns.index({"from": "human", "value": "q"}) + 1 :]]


def results_of(*said):
    """What the tool turn says, parsed."""
    (_, _), (speaker, value) = after_question(*said)
    assert speaker == "tool"
    return [json.loads(line) for line in value.split("\n") if not line.startswith("<")]


def call_line(said):
    """The JSON of the only call."""
    return after_question(said)[0][1].split("\n")[-2]


# ── the gpt turn ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (assistant("hi"), "<think>\n</think>\nhi"),
        (assistant(None), "<think>\n</think>"),
        ({"role": "assistant"}, "<think>\n</think>"),
        (assistant("hi", reasoning="  \n "), "<think>\n</think>\nhi"),
        (assistant("hi", reasoning="\n a \n"), "<think>\n\n a \n\n</think>\nhi"),
        (assistant("  text \n\n"), "<think>\n</think>\n  text"),
        (assistant("<think>t</think>ans", reasoning="r"), "<think>\nr\n</think>\n<think>t</think>ans"),
        (assistant("  x<think>t</think>  "), "x<think>t</think>"),
        (assistant("<REASONING_SCRATCHPAD>b"), "<think>b"),
        (assistant("a</REASONING_SCRATCHPAD>b"), "<think>\n</think>\na</REASONING_SCRATCHPAD>b"),
        (assistant("hi", tool_calls=[]), "<think>\n</think>\nhi"),
        (assistant("hi", tool_calls=None), "<think>\n</think>\nhi"),
    ],
)
def test_an_answer_is_written_as_hermes_writes_it(said, value):
    assert after_question(said) == [("gpt", value)]


@pytest.mark.parametrize(
    "said",
    [
        {"reasoning_content": "r"},
        {"reasoning": None, "reasoning_content": "r"},
        {"reasoning": " ", "reasoning_content": "r"},
        {"reasoning": "r", "reasoning_content": "another spelling"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "r"}]},
        {"content": [{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "hi"}]},
    ],
)
def test_reasoning_counts_wherever_the_provider_put_it(said):
    assert after_question(assistant("hi") | said) == [("gpt", "<think>\nr\n</think>\nhi")]


def test_a_think_tag_inside_arguments_does_not_suppress_the_empty_block():
    written = call_line(assistant(tool_calls=[call(arguments='{"command": "echo <think>"}')]))
    assert json.loads(written)["arguments"] == {"command": "echo <think>"}
    [(_, value)] = after_question(assistant(tool_calls=[call(arguments='{"command": "echo <think>"}')]))
    assert value.startswith("<think>\n</think>\n<tool_call>\n")


def test_text_beside_calls_stands_before_them_as_it_is():
    said = assistant("  text \n", reasoning="r", tool_calls=[call(), call("b", "g")])
    assert after_question(said)[0][1] == (
        '<think>\nr\n</think>\n  text \n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
    )
    blank = assistant(" \n", tool_calls=[call()])
    assert after_question(blank)[0][1] == '<think>\n</think>\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ('{"b":1,"a":"\\u00e9\\/"}', '{"b": 1, "a": "é/"}'),
        ('{"k":1,"j":3,"k":2}', '{"k": 2, "j": 3}'),
        ('{"a":1.10,"b":1e5,"c":-0,"d":1e-7,"e":12345678901234567890123}',
         '{"a": 1.1, "b": 100000.0, "c": 0, "d": 1e-07, "e": 12345678901234567890123}'),
        ("[1]", "[1]"),
        ("5", "5"),
        ("null", "null"),
        (None, "null"),
        ({"x": 1.0}, '{"x": 1.0}'),
        ("", "{}"),
        ('{"s":"\\ud800"}', '{"s": "\ud800"}'),
    ],
)  # fmt: skip
def test_arguments_are_written_as_python_writes_json(arguments, written, caplog):
    said = assistant(tool_calls=[call(arguments=arguments)])
    assert call_line(said) == f'{{"name": "f", "arguments": {written}}}'
    assert caplog.records == []


@pytest.mark.parametrize(
    "broken",
    ['{"x":', "{'a': 1}", '{"a": NaN}', '{"a": 1e999}', "[" * 100_000, "1" * 5000, {"a": math.nan}, {"a": {1}}],
)
def test_broken_arguments_become_an_empty_object_with_a_warning_that_names_the_call(broken, caplog):
    with caplog.at_level(logging.WARNING, logger="stemma.formats.hermes"):
        written = call_line(assistant(tool_calls=[call("call_7", "terminal", broken)]))
    assert written == '{"name": "terminal", "arguments": {}}'
    [record] = caplog.records
    assert "call 'call_7' to 'terminal'" in record.getMessage()


def test_entries_that_are_no_calls_are_skipped():
    said = [assistant(tool_calls=[None, call("a", "f"), {}, "x"]), result("a")]
    assert results_of(*said) == [{"tool_call_id": "a", "name": "f", "content": "r"}]
    assert after_question(assistant("hi", tool_calls=[None])) == [("gpt", "<think>\n</think>\nhi")]


def test_a_call_without_function_or_name_is_unknown():
    assert call_line(assistant(tool_calls=[{"id": "a"}])) == '{"name": "unknown", "arguments": {}}'
    assert call_line(assistant(tool_calls=[call(name=None)])) == '{"name": "unknown", "arguments": {}}'


# ── the tool turn ────────────────────────────────────────────────────────────────────────────────────────────────


def names(*said):
    return [said["name"] for said in results_of(*said)]


def test_results_out_of_order_keep_their_names():
    calls = assistant(tool_calls=[call("a", "f1"), call("b", "f2")])
    assert names(calls, result("b"), result("a")) == ["f2", "f1"]


def test_a_result_without_an_id_has_the_name_of_the_call_at_its_place():
    calls = assistant(tool_calls=[call("a", "f1"), call("b", "f2")])
    assert names(calls, {"role": "tool", "content": "r"}, result(None)) == ["f1", "f2"]
    assert names(assistant(tool_calls=[call(None, "f1"), call("b", "f2")]), result("b"), result("x")) == [
        "f2",
        "unknown",
    ]
    assert names(assistant(tool_calls=[call(None, "f1"), call("b", "f2")]), result("x"), result("b")) == ["f1", "f2"]


def test_a_result_whose_id_no_call_has_is_unknown():
    assert names(assistant(tool_calls=[call("a", "f")]), result("a"), result("b")) == ["f", "unknown"]
    assert names(assistant(tool_calls=[call("a", "f")]), result("b")) == ["unknown"]
    assert names(assistant(tool_calls=[call("a", "f")]), result("a"), {"role": "tool", "content": "r"}) == [
        "f",
        "unknown",
    ]


def test_where_a_provider_repeats_an_id_the_place_tells_the_calls_apart():
    calls = assistant(tool_calls=[call("x", "f1"), call("x", "f2")])
    assert names(calls, result("x"), result("x")) == ["f1", "f2"]


@pytest.mark.parametrize("odd", [[], {}, 3, 1.5, True])
def test_an_id_that_is_no_text_is_written_and_counts_as_missing(odd):
    [said] = results_of(assistant(tool_calls=[call("a", "f")]), result(odd))
    assert said == {"tool_call_id": odd, "name": "f", "content": "r"}


def test_a_missing_id_is_empty():
    [said] = results_of(assistant(tool_calls=[call()]), {"role": "tool", "content": "x"})
    assert said["tool_call_id"] == ""


@pytest.mark.parametrize(
    ("content", "written"),
    [
        (' {"b":1,\n"a":[1.0,1e5,"\\u00e9"]}', '{"b": 1, "a": [1.0, 100000.0, "é"]}'),
        ('{"k":1,"k":2}', '{"k": 2}'),
        ("[not json", '"[not json"'),
        ("42", '"42"'),
        ("", '""'),
        (None, "null"),
        (5, "5"),
        ({"k": 1}, '{"k": 1}'),
        ('{"k": NaN}', '"{\\"k\\": NaN}"'),
        ('[1e999, "x"]', '"[1e999, \\"x\\"]"'),
        ({"k": math.nan}, '"{\\"k\\": NaN}"'),
        ("[" * 100_000, json.dumps("[" * 100_000)),
        ("[" + "1" * 5000 + "]", '"[' + "1" * 5000 + ']"'),
        ('\x0b{"a":1}\u2028', '"\\u000b{\\"a\\":1}\u2028"'),
        ('{"a":"x\ny"}', '"{\\"a\\":\\"x\\ny\\"}"'),
        ([{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {}}], '"t\\n[image]"'),
        ([{"type": "text", "text": '{"a":1}'}], '{"a": 1}'),
        ({"_multimodal": True, "content": [], "text_summary": "S"}, '"S"'),
        ("\ud800", '"\ud800"'),
        ({1, 2}, '"\\"{1, 2}\\""'),
    ],
)  # fmt: skip
def test_a_result_is_parsed_if_it_is_json_and_stays_text_if_it_is_not(content, written):
    (_, _), (_, value) = after_question(assistant(tool_calls=[call()]), result("a", content))
    assert value == f'<tool_response>\n{{"tool_call_id": "a", "name": "f", "content": {written}}}\n</tool_response>'


def test_the_results_of_one_turn_stand_in_one_turn():
    calls = assistant(tool_calls=[call("a"), call("b")])
    turns = after_question(calls, result("a"), result("b"), assistant("done"))
    assert [speaker for speaker, _ in turns] == ["gpt", "tool", "gpt"]
    assert turns[1][1].count("<tool_response>") == 2


def test_results_that_follow_no_call_and_system_messages_are_left_out():
    assert after_question(result("a"), {"role": "system", "content": "s"}, assistant("hi")) == [
        ("gpt", "<think>\n</think>\nhi")
    ]
    turns = after_question(assistant(tool_calls=[call("a")]), {"role": "system", "content": "s"}, result("a"))
    assert [speaker for speaker, _ in turns] == ["gpt"]


# ── the other turns ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_user_turn_keeps_both_questions():
    said = [USER, assistant("a1"), {"role": "user", "content": "q2"}, assistant("a2")]
    assert [turn["value"] for turn in to_trajectory(said) if turn["from"] == "human"] == ["q", "q2"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_leading_system_message_neither_doubles_the_question_nor_replaces_the_generated_turn(role):
    said = [{"role": role, "content": "SECRET"}, USER, assistant("a")]
    assert to_trajectory(said) == to_trajectory(said[1:])
    assert to_trajectory(said)[0]["value"] == system_prompt(None)


def test_a_picture_in_a_question_is_a_word_in_a_string():
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "data:…"}}]
    assert to_trajectory([{"role": "user", "content": parts}])[1]["value"] == "what is this?\n[image]"
    assert to_trajectory([{"role": "user", "content": None}])[1]["value"] == ""


@pytest.mark.parametrize("style", ["hermes", "sharegpt"])
@pytest.mark.parametrize("role", ["function", "critic", None, ""])
def test_a_role_the_format_has_no_turn_for_is_refused_by_name(role, style):
    with pytest.raises(BadMessage, match=r"message 1 has the role"):
        to_trajectory([USER, {"role": role, "content": "x"}], style=style)


def test_an_unknown_style_is_refused():
    with pytest.raises(BadTrajectory, match="'alpaca'; take one of hermes, sharegpt"):
        to_trajectory([USER], style="alpaca")


def test_tools_are_listed_with_required_null_and_defaults():
    tools = [
        {"type": "function", "function": {"name": "a", "strict": True}},
        {"type": "function", "function": {"name": "b", "description": None, "parameters": {"x": 1e-7}}},
        {"name": "bare", "description": "\ud800"},
    ]
    listed = [
        '{"name": "a", "description": "", "parameters": {}, "required": null}',
        '{"name": "b", "description": null, "parameters": {"x": 1e-07}, "required": null}',
        '{"name": "bare", "description": "\ud800", "parameters": {}, "required": null}',
    ]
    assert system_prompt(tools).splitlines()[2] == f"[{', '.join(listed)}]"
    assert system_prompt(tools[:2]).splitlines()[2] == f"[{', '.join(listed[:2])}]"
    assert system_prompt([]) == system_prompt(None)
    assert system_prompt(None).splitlines()[2] == "[]"


def test_tools_that_change_give_another_prompt():
    tools = [{"type": "function", "function": {"name": "a"}}]
    before = system_prompt(tools)
    tools[0]["function"]["name"] = "b"
    assert system_prompt(tools) == before.replace('"name": "a"', '"name": "b"')


@pytest.mark.parametrize("write", [sharegpt_entry, to_trajectory])
def test_tools_with_nan_are_refused(write):
    with pytest.raises(BadTrajectory, match="the tools cannot be written as JSON"):
        write([], [{"type": "function", "function": {"name": "a", "parameters": {"x": math.nan}}}])


def test_scratchpads_become_think_tags():
    assert convert_scratchpad_to_think("<REASONING_SCRATCHPAD>a</REASONING_SCRATCHPAD>b") == "<think>a</think>b"
    assert convert_scratchpad_to_think("</REASONING_SCRATCHPAD>") == "</REASONING_SCRATCHPAD>"
    assert convert_scratchpad_to_think("<reasoning_scratchpad>") == "<reasoning_scratchpad>"


# ── the older dialect ────────────────────────────────────────────────────────────────────────────────────────────

TOOLS = [{"type": "function", "function": {"name": "web_search", "parameters": {}}}]
SEARCH = [
    {"role": "system", "content": "You are a helpful assistant..."},
    {"role": "user", "content": "Search for Python tutorials"},
    assistant(tool_calls=[call("call_abc123", "web_search", '{"query": "Python tutorials"}')]),
    result("call_abc123", '{"results": [...]}'),
    assistant("Here's what I found...", reasoning="Let me think about this step by step..."),
]


def test_the_older_dialect_is_written_as_its_document_shows_it():
    asked = '<tool_call>\n{"name": "web_search", "arguments": {"query": "Python tutorials"}}\n</tool_call>'
    answered = "<think>\nLet me think about this step by step...\n</think>\nHere's what I found..."
    assert sharegpt_entry(SEARCH, TOOLS, source="hermes-agent") == {
        "conversations": [
            {"from": "system", "value": "You are a helpful assistant..."},
            {"from": "human", "value": "Search for Python tutorials"},
            {"from": "gpt", "value": asked},
            {"from": "tool", "value": '<tool_response>\n{"results": [...]}\n</tool_response>'},
            {"from": "gpt", "value": answered},
        ],
        "tools": json.dumps(TOOLS),
        "source": "hermes-agent",
    }
    assert sharegpt_entry([USER]) == {
        "conversations": [{"from": "human", "value": "q"}],
        "tools": "[]",
        "source": "stemma",
    }


def test_in_the_older_dialect_each_result_has_a_turn_of_its_own_and_stays_raw():
    calls = assistant(tool_calls=[call("a"), call("b")])
    assert after_question(calls, result("a", ' {"a":1}\n'), result("b", None), style="sharegpt")[1:] == [
        ("tool", '<tool_response>\n {"a":1}\n\n</tool_response>'),
        ("tool", "<tool_response>\n\n</tool_response>"),
    ]


# ── other providers' messages ────────────────────────────────────────────────────────────────────────────────────

BLOCKS = [
    {"type": "thinking", "thinking": "t", "signature": "s"},
    {"type": "text", "text": "a"},
    {"type": "tool_use", "id": "x", "name": "f", "input": {"k": 1}},
]
ANSWERED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "r"}]}


@pytest.mark.parametrize("style", ["hermes", "sharegpt"])
def test_blocks_are_written_as_the_chat_messages_they_stand_for(style):
    plain = assistant("a", reasoning="t", tool_calls=[call("x", "f", '{"k": 1}')])
    assert after_question(assistant(BLOCKS), ANSWERED, style=style) == after_question(plain, result("x"), style=style)


def test_blocks_that_go_on_after_a_call_are_written_in_their_order():
    said = assistant([*BLOCKS, {"type": "text", "text": "b"}])
    (_, value), (speaker, answered) = after_question(said, ANSWERED)
    assert value == ('<think>\nt\n</think>\na\n<tool_call>\n{"name": "f", "arguments": {"k": 1}}\n</tool_call>\nb')
    assert speaker == "tool"
    assert '"name": "f"' in answered


def test_a_message_that_is_refused_is_named_by_its_own_place():
    with pytest.raises(BadMessage, match="message 2 has the role 'critic'"):
        to_trajectory([assistant(BLOCKS), {**ANSWERED, "content": ANSWERED["content"] * 2}, {"role": "critic"}])


def test_a_turn_that_does_not_say_what_its_message_says_is_not_written():
    forged = {**assistant("said"), "raw_turn": "<think>\n</think>\nforged"}
    assert after_question(forged) == [("gpt", "<think>\n</think>\nsaid")]
    assert not has_raw_turn(forged, "hermes")
    assert has_raw_turn({**assistant("said "), "raw_turn": "said "}, "hermes")
