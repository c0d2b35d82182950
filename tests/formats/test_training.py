"""Rows before any trainer's format: what is trained is what was sampled, and nothing ephemeral is in them."""

import pytest

from stemma import Call, MessageGraph
from stemma.errors import BadRecord
from stemma.formats.hermes import to_trajectory
from stemma.formats.training import TextRules, is_answer, row_of_entry, rows_of_graph

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def conversation():
    graph = MessageGraph([{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}])
    extra = {"ephemeral": "CANARY", "prefill": [{"role": "user", "content": "CANARY"}]}
    graph.record(
        {"role": "assistant", "content": None, "tool_calls": [CALL]}, Call(model="m", tools=TOOLS, extra=extra)
    )
    graph.append({"role": "tool", "tool_call_id": "c", "content": "R"})
    call = Call(model="m", tools=TOOLS, extra=extra, started=0.5, finish_reason="stop")
    graph.record({"role": "assistant", "content": "A"}, call)
    return graph


def test_a_row_trains_what_was_sampled_and_carries_tools_model_and_time():
    (row,) = rows_of_graph(conversation(), {"difficulty": "hard"})
    assert row.trained == (2, 4)
    assert (row.tools, row.model, row.completed) == (TOOLS, "m", True)
    assert row.timestamp == "1970-01-01T00:00:00.500000+00:00"
    assert row.metadata == {"difficulty": "hard"}


def test_a_row_sampled_under_an_ephemeral_prompt_is_marked_as_not_on_policy():
    graph = conversation()
    graph[1]["content"] = "Q'"
    graph.append({"role": "user", "content": "V"})
    graph.record({"role": "assistant", "content": "B"}, Call(model="m", tools=TOOLS))
    under, plain = rows_of_graph(graph, {})
    assert [reply.off_policy for reply in under.replies] == ["ephemeral prompt left out"] * 2
    assert [reply.off_policy for reply in plain.replies] == [""]


def test_an_edit_gives_two_rows_and_trains_each_reply_once():
    graph = conversation()
    graph[1]["content"] = "Q'"
    graph.append({"role": "user", "content": "V"})
    graph.record({"role": "assistant", "content": "B"}, Call(model="m", tools=TOOLS))
    assert [row.trained for row in rows_of_graph(graph, {})] == [(2, 4), (6,)]


def test_what_is_ours_in_the_metadata_is_no_column():
    (row,) = rows_of_graph(conversation(), {"a": 1, "stemma": {"imported": {"raw": "CANARY"}}})
    assert "stemma" not in row.metadata
    assert row.metadata["a"] == 1


def test_ephemeral_text_is_in_no_row():
    (row,) = rows_of_graph(conversation(), {})
    assert "CANARY" not in str((row.messages, row.metadata, row.tools, row.turns()))


@pytest.mark.parametrize("finish", ["length", "tool_calls"])
def test_a_reply_that_was_cut_completes_nothing(finish):
    graph = MessageGraph([{"role": "user", "content": "Q"}])
    graph.record({"role": "assistant", "content": "A"}, Call(model="m", finish_reason=finish))
    (row,) = rows_of_graph(graph, {}, rules=TextRules(keep_truncated=True))
    assert not row.completed


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (Call(model="m", finish_reason="length"), "truncated"),
        (Call(model="m", finish_reason="content_filter"), "content filter"),
        (Call(model="m", extra={"trainable": False}), "untrainable"),
        (Call(model="m", extra={"delivered": False}), "undelivered"),
    ],
)
def test_a_reply_that_must_not_be_trained_is_listed_with_its_reason_and_stays_context(call, reason):
    graph = MessageGraph([{"role": "user", "content": "Q"}])
    graph.record({"role": "assistant", "content": "A"}, call)
    graph.append({"role": "user", "content": "and?"})
    graph.record({"role": "assistant", "content": "B"}, Call(model="m"))
    left_out, row = rows_of_graph(graph, {}, name="c")
    assert (left_out.reason, left_out.rollout, left_out.index) == (reason, "c", 1)
    assert (row.trained, row.messages[1]["content"]) == ((3,), "A")


@pytest.mark.parametrize("content", ["", "  ", None, "(empty)"])
def test_an_empty_reply_is_no_answer(content):
    assert not is_answer({"role": "assistant", "content": content})


def test_entries_of_each_kind_become_rows():
    messages = conversation().messages()
    hermes = {"conversations": to_trajectory(messages, TOOLS), "model": "m", "completed": True, "prompt_index": 7}
    openai = {"messages": messages, "tools": TOOLS, "level": "hard"}
    older = {"conversations": to_trajectory(messages, style="sharegpt"), "metadata": {"a": 1}}
    rows = [row_of_entry(entry, "x") for entry in (hermes, openai, older)]
    assert [row.trained for row in rows] == [(1, 3), (2, 4), (2, 4)]
    assert rows[0].metadata == {"prompt_index": 7}
    assert rows[1].metadata == {"level": "hard"}
    assert rows[2].metadata == {"a": 1}
    assert rows[1].tools == TOOLS


def test_a_message_with_weight_zero_is_context():
    messages = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "weight": 0}]
    assert row_of_entry({"messages": messages}, "x").trained == ()


@pytest.mark.parametrize(
    "entry", [{}, {"messages": "x"}, {"messages": [{}]}, {"conversations": 3}, {"messages": [], "tools": "{"}]
)
def test_an_entry_that_is_none_is_refused_with_what_it_lacks(entry):
    with pytest.raises(BadRecord):
        row_of_entry(entry, "x")
