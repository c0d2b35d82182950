"""What the presets for axolotl and LLaMA-Factory write, and leave out; no trainer needed.
`tests/trainers/axolotl` and `tests/trainers/llamafactory` load the same rows with the trainers' own code.
"""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converted import record_of, records_of
from stemma.formats import axolotl, llamafactory
from stemma.formats.axolotl import AXOLOTL, AXOLOTL_TURNS, hermes_mapping
from stemma.formats.export import export
from stemma.formats.llamafactory import LLAMAFACTORY, LLAMAFACTORY_TURNS
from stemma.formats.training import LeftOut, TrainingRow

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
S, U = {"role": "system", "content": "be brief"}, {"role": "user", "content": "where?"}
PRESETS = (AXOLOTL, AXOLOTL_TURNS, LLAMAFACTORY, LLAMAFACTORY_TURNS)


def said(content="here", **more):
    return {"role": "assistant", "content": content, **more}


def called(*arguments, content=None, **more):
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": text}}
        for at, text in enumerate(arguments)
    ]
    return said(content, tool_calls=calls, **more)


def result(content="found", at=0):
    return {"role": "tool", "tool_call_id": f"c{at}", "content": content}


def row(*messages, trained=None, tools=None):
    """A row in which all replies are trained, unless said otherwise."""
    replies = tuple(at for at, message in enumerate(messages) if message["role"] == "assistant")
    return TrainingRow(id="r", messages=list(messages), trained=trained or replies, tools=tools)


axolotl_row, whole_row = record_of(axolotl.axolotl_row), record_of(llamafactory.whole_row)
turn_rows = records_of(llamafactory.turn_rows)


def turns(converted):
    return [(turn["from"], turn["value"]) for turn in converted["conversations"]]


def reason(convert, *messages, **more):
    with pytest.raises(LeftOut) as left_out:
        convert(row(*messages, **more))
    assert left_out.value.detail
    return left_out.value.reason


def test_an_axolotl_row_says_on_every_message_whether_it_is_trained():
    whole = row(
        S, U, called('{"q":  0.41}', reasoning="hm"), result(), said("no"), U, said(), trained=(2, 6), tools=[LOOK]
    )
    function = {"name": "look", "arguments": '{"q":  0.41}'}
    call = {"id": "c0", "type": "function", "function": function}
    assert axolotl_row(whole) == {
        "messages": [
            {**S, "train": False},
            {**U, "train": False},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call], "train": True},
            {"role": "tool", "content": "found", "tool_call_id": "c0", "name": "look", "train": False},
            {"role": "assistant", "content": "no", "train": False},
            {**U, "train": False},
            {"role": "assistant", "content": "here", "train": True},
        ],
        "tools": json.dumps([LOOK]),
    }


def test_axolotl_turns_has_a_row_for_each_trained_message_and_trains_only_that():
    first, second = records_of(AXOLOTL_TURNS.convert)(row(U, said("a"), U, said("b"), U, said("c"), trained=(1, 5)))
    assert [message["train"] for message in first["messages"]] == [False, True]
    assert [message["train"] for message in second["messages"]] == [False] * 5 + [True]


def test_axolotl_has_tools_as_text_always_and_no_trained_reply_that_it_would_pass_over():
    assert axolotl_row(row(U, said()))["tools"] == "[]"
    assert axolotl_row(row(U, said(""), U, said(), trained=(3,)))["messages"][1]["train"] is False


def test_axolotl_is_told_the_fields_by_name():
    config = AXOLOTL.sidecars("train.jsonl")["axolotl.yml"]
    for line in (
        '  - path: "train.jsonl"',
        "    type: chat_template",
        "    field_messages: messages",
        "    message_field_training: train",
        "    roles_to_train: []",
        "excess_length_strategy: raise",
    ):
        assert f"\n{line}" in config
    assert '  - path: "a: b\\"#.jsonl"' in AXOLOTL.sidecars('a: b"#.jsonl')["axolotl.yml"]
    assert "    field_messages: conversations\n" in hermes_mapping("train.jsonl")["axolotl.yml"]


def test_a_llamafactory_row_has_system_and_tools_beside_the_turns():
    assert whole_row(row(S, U, said(), tools=[LOOK])) == {
        "conversations": [{"from": "human", "value": "where?"}, {"from": "gpt", "value": "here"}],
        "system": "be brief",
        "tools": json.dumps([LOOK]),
        "trained_turns": [1],
    }
    bare = whole_row(row(U, said()))
    assert (bare["system"], bare["tools"]) == ("", "")


@pytest.mark.parametrize(
    ("reply", "speaker", "value"),
    [
        (said("yes"), "gpt", "yes"),
        (said("yes", reasoning="hm"), "gpt", "<think>\nhm\n</think>\n\nyes"),
        (called('{"q":1}'), "function_call", '[{"name": "look", "arguments": {"q": 1}}]'),
        (
            called("{}", content="so"),
            "function_call",
            'so\n<tool_call>\n[{"name": "look", "arguments": {}}]\n</tool_call>',
        ),
        (
            called('{"q":1}', '{"q":2}', reasoning="hm"),
            "function_call",
            '<think>\nhm\n</think>\n\n<tool_call>\n[{"name": "look", "arguments": {"q": 1}}, '
            '{"name": "look", "arguments": {"q": 2}}]\n</tool_call>',
        ),
    ],
)
def test_llamafactory_has_one_form_for_each_kind_of_reply(reply, speaker, value):
    assert turns(whole_row(row(U, reply)))[1] == (speaker, value)


def test_the_end_of_a_call_among_its_arguments_is_sealed():
    (_, value) = turns(whole_row(row(U, called('{"q": "</tool_call>"}', content="so"))))[1]
    assert value.count("</tool_call>") == 1
    assert json.loads(value.split("<tool_call>")[1].removesuffix("</tool_call>"))[0]["arguments"] == {
        "q": "</tool_call>"
    }


def test_what_stands_between_two_replies_becomes_one_turn():
    calls = called("{}", "{}")
    assert turns(whole_row(row(U, U, said())))[0] == ("human", "where?\n\nwhere?")
    both = "one\n</tool_response>\n<tool_response>\ntwo"
    assert turns(whole_row(row(U, calls, result("one"), result("two", 1), said())))[2] == ("observation", both)
    mixed = "<tool_response>\none\n</tool_response>\nwhere?"
    assert turns(whole_row(row(U, calls, result("one"), U, said())))[2] == ("human", mixed)


def test_what_follows_the_last_trained_message_is_cut():
    assert len(turns(whole_row(row(U, said(), U, said("by hand"), U, trained=(1,))))) == 2


def test_a_context_reply_is_never_trained_by_llamafactory():
    messages = (U, said("a"), U, said("by hand"), U, called("{}"))
    assert reason(whole_row, *messages, trained=(1, 5)) == "context turn of the model"
    first, second = turn_rows(row(*messages, trained=(1, 5)))
    assert [value for _, value in turns(first)] == ["where?", "a"]
    assert [value for _, value in turns(second)] == ["where?", "a", "where?", "by hand", "where?", turns(second)[5][1]]


def test_llamafactory_leaves_out_what_it_cannot_say():
    assert reason(whole_row, S, said()) == "no prompt"
    assert reason(whole_row, U, said("a"), said("b")) == "two turns of the model in a row"
    assert reason(whole_row, U, said(), S, U, said()) == "system message inside"
    assert reason(whole_row, U, called("{}", content="a <tool_call> is")) == "tool call in the text"


def test_a_tool_without_parameters_gets_empty_ones_for_llamafactory():
    bare = {"type": "function", "function": {"name": "stop"}}
    (tool,) = json.loads(whole_row(row(U, said(), tools=[bare]))["tools"])
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}
    assert bare == {"type": "function", "function": {"name": "stop"}}


def test_llamafactory_is_told_which_turns_to_train():
    for preset, mask in ((LLAMAFACTORY, "false"), (LLAMAFACTORY_TURNS, "true")):
        files = preset.sidecars("rows.jsonl")
        assert f"\nmask_history: {mask} " in files["llamafactory.yml"]
        assert json.loads(files["dataset_info.json"])["stemma"] == {
            "file_name": "rows.jsonl",
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "system": "system", "tools": "tools"},
        }


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_every_row_that_a_trainer_would_stop_at_is_left_out_with_its_reason(preset, tmp_path):
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    rows = [
        row(U, said()),
        row(U, called("{broken")),
        row(U, called("[1]")),
        row(U, called('{"q": NaN}')),
        row(U, called('{"q": "\\ud800"}')),
        row(U, said("\ud800")),
        row(picture, said()),
        row({"role": "narrator", "content": "x"}, said()),
        row(U, called("{}"), result("<|im_end|>"), said()),
    ]
    report = export(rows, preset, tmp_path)
    assert report.written == 2  # the last row's first reply stands before the marker
    assert {why: found.rows for why, found in report.left_out.items()} == {
        "arguments are not an object": 3,
        "lone surrogate": 2,
        "not text": 1,
        "unknown role": 1,
        "control marker": 1,
    }


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_row_is_not_changed_by_being_exported(preset):
    whole = row(
        S, U, called("{}", reasoning="hm"), result(), said(), tools=[{"type": "function", "function": {"name": "x"}}]
    )
    before = copy.deepcopy((whole.messages, whole.tools))
    preset.convert(whole)
    assert (whole.messages, whole.tools) == before


ROLES = st.lists(st.sampled_from(["system", "user", "tool", "assistant", "calls"]), max_size=12)


@given(ROLES, st.data())
def test_llamafactory_turns_alternate_and_say_each_message_once_whatever_the_roles(roles, data):
    messages = [{"role": role.replace("calls", "assistant"), "content": f"<{at}>"} for at, role in enumerate(roles)]
    for role, message in zip(roles, messages, strict=True):
        if role == "calls":
            message["tool_calls"] = called("{}")["tool_calls"]
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    trained = tuple(sorted(data.draw(st.sets(st.sampled_from(replies), min_size=1)))) if replies else ()
    if not trained:
        return
    try:
        converted = turn_rows(row(*messages, trained=trained))
    except LeftOut:
        return
    assert len(converted) == len(trained)
    for one, last in zip(converted, trained, strict=True):
        speakers = [speaker for speaker, _ in turns(one)]
        assert set(speakers[0::2]) <= {"human", "observation"}
        assert set(speakers[1::2]) <= {"gpt", "function_call"}
        assert f"<{last}>" in turns(one)[-1][1]
        text = one["system"] + "".join(value for _, value in turns(one))
        assert [text.count(f"<{at}>") for at in range(len(messages))] == [
            int(at <= last) for at in range(len(messages))
        ]
