"""What an entry of a dataset file says is what it means: which replies are trained, and what else is known of them."""

import json

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stemma.errors import BadRecord
from stemma.formats.importing import Importer, read_line
from stemma.formats.presets import preset
from stemma.formats.reading import read_entry
from stemma.formats.training import TrainingRow, row_of_entry, rows_of_graph

TURNS = [
    {"from": "human", "value": "q1"},
    {"from": "gpt", "value": "a1"},
    {"from": "human", "value": "q2"},
    {"from": "gpt", "value": "a2"},
]
MESSAGES = [
    {"role": "user", "content": "q1"},
    {"role": "assistant", "content": "a1"},
    {"role": "user", "content": "q2"},
    {"role": "assistant", "content": "a2"},
]


def flagged(items, at, **flags):
    return [{**item, **flags} if at == i else item for i, item in enumerate(items)]


def imported(entry):
    """The graph and the metadata that `stemma import` makes of an entry."""
    raw = json.dumps(entry).encode()
    found = Importer("data").named(read_line(raw), raw, 1)
    return found.conversation.graph(), found.metadata


def both_ways(entry):
    """The rows of an entry, read straight from its file and by way of a store."""
    graph, metadata = imported(entry)
    return row_of_entry(entry, "x"), *rows_of_graph(graph, metadata)


def records(name, row):
    """What a preset writes of a row."""
    written = preset(name).convert(row)
    return [getattr(one, "record", one) for one in ([written] if isinstance(written, dict) else written)]


# ── which replies are trained ────────────────────────────────────────────────────────────────────────────────────

NOT_TRAINED = [
    {"conversations": TURNS, "trained_turns": [3]},
    {"conversations": flagged(TURNS, 1, train=False)},
    {"conversations": flagged(TURNS, 1, weight=0)},
    {"conversations": flagged(TURNS, 1, weight=0.0, train=None)},
    {"conversations": flagged(TURNS, 1, train=False), "trained_turns": [1, 3]},
    {"messages": flagged(MESSAGES, 1, train=False)},
    {"messages": flagged(MESSAGES, 1, weight=0)},
    {"messages": flagged(MESSAGES, 1, weight=False)},
    {"messages": flagged(flagged(MESSAGES, 1, weight=0), 3, weight=1)},
    {"conversations": flagged(MESSAGES, 1, train=False)},
    {"prompt": MESSAGES[:3], "completion": MESSAGES[3:], "tools": "null"},
]


@pytest.mark.parametrize("entry", NOT_TRAINED)
def test_a_reply_that_the_entry_does_not_train_is_context_in_a_row_and_in_a_store(entry):
    graph, _ = imported(entry)
    assert graph == MESSAGES
    assert [call.index for call in graph.calls()] == [3]
    assert [row.trained for row in both_ways(entry)] == [(3,), (3,)]
    assert all(row.messages == MESSAGES for row in both_ways(entry))


@pytest.mark.parametrize(
    "entry",
    [
        {"conversations": TURNS},
        {"conversations": TURNS, "trained_turns": None},
        {"conversations": flagged(TURNS, 1, weight=None, train=None)},
        {"conversations": flagged(TURNS, 1, weight=1, train=True)},
        {"conversations": flagged(TURNS, 0, weight=1)},
        {"messages": flagged(MESSAGES, 1, weight=None)},
        {"messages": flagged(MESSAGES, 1, weight=1.0)},
    ],
)
def test_a_reply_is_trained_unless_the_entry_says_otherwise_and_null_says_nothing(entry):
    assert [row.trained for row in both_ways(entry)] == [(1, 3), (1, 3)]


@pytest.mark.parametrize(
    "entry",
    [
        {"conversations": TURNS, "trained_turns": [2]},
        {"conversations": TURNS, "trained_turns": [9]},
        {"conversations": TURNS, "trained_turns": [True]},
        {"conversations": TURNS, "trained_turns": "all"},
        {"conversations": flagged(TURNS, 1, weight="0")},
        {"conversations": flagged(TURNS, 1, weight=0.5)},
        {"conversations": flagged(TURNS, 1, train="no")},
        {"conversations": flagged(TURNS, 0, train=True)},
        {"messages": flagged(MESSAGES, 1, weight=-1)},
        {"messages": flagged(MESSAGES, 1, weight=[])},
        {"messages": flagged(MESSAGES, 0, train=True)},
        {"prompt": "q", "completion": "a"},
    ],
)
def test_an_entry_that_does_not_say_clearly_what_is_trained_is_refused(entry):
    for read in (lambda entry: read_line(json.dumps(entry).encode()), lambda entry: row_of_entry(entry, "x")):
        with pytest.raises(BadRecord):
            read(entry)


@st.composite
def rows(draw):
    """Rows some of whose replies are context."""
    count = draw(st.integers(1, 5))
    said = []
    for number in range(count):
        said.append({"role": "user", "content": f"q{number}"})
        said.append({"role": "assistant", "content": f"a{number}", "reasoning": f"r{number}"})
    trained = sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))
    return TrainingRow(id="x", messages=said, trained=tuple(2 * at + 1 for at in trained), model="m")


PRESETS = ["hermes", "sharegpt", "openai", "axolotl", "axolotl-turns", "trl", "trl-turns", "llamafactory", "unsloth"]


@pytest.mark.parametrize("name", PRESETS)
@given(rows())
def test_what_our_own_exports_train_is_trained_when_they_are_read_again_and_nothing_else(name, row):
    assume(name not in ("llamafactory", "unsloth") or len(row.trained) == (row.trained[-1] + 1) // 2)
    row = msgspec.structs.replace(row, messages=row.messages[: row.trained[-1] + 1])
    written = records(name, row)
    read = [row_of_entry(one, "y") for one in written]
    stored = [found for one in written for found in both_ways(one)[1:]]
    expected = [row.messages[at]["content"] for at in row.trained]
    for found in (read, stored):
        said = [one.messages[at]["content"] for one in found for at in one.trained]
        assert [text.rpartition("</think>\n")[2] for text in said] == expected


# ── what is known of them ────────────────────────────────────────────────────────────────────────────────────────


def test_the_columns_about_sampling_belong_to_the_calls():
    entry = {
        "conversations": TURNS,
        "id": "c1",
        "model": "m",
        "finish_reason": "stop",
        "on_policy": False,
        "timestamp": "2026-01-02T03:04:05.000006",
        "completed": False,
        "reward": 0.5,
        "source": "airoboros",
        "metadata": {"level": "hard", "json": '{"tags": ["a"]}'},
    }
    columns = {"id": "c1", "reward": 0.5, "source": "airoboros", "level": "hard", "tags": ["a"]}
    graph, metadata = imported(entry)
    first, last = (sampled.call for sampled in graph.calls())
    assert (first.model, first.finish_reason, first.extra) == ("m", None, {"imported": True, "on_policy": False})
    assert last.finish_reason == "stop"
    assert {key: value for key, value in metadata.items() if key != "stemma"} == columns
    for row in both_ways(entry):
        assert (row.model, row.timestamp, row.completed) == ("m", entry["timestamp"], False)
        assert {key: value for key, value in row.metadata.items() if key != "on_policy"} == columns
    assert not read_entry(entry).on_policy


@pytest.mark.parametrize("completed", [True, False])
@pytest.mark.parametrize("last", ["a2", ""])
def test_whether_a_conversation_was_completed_is_what_the_entry_says(completed, last):
    entry = {"messages": flagged(MESSAGES, 3, content=last), "completed": completed}
    assert [row.completed for row in both_ways(entry)] == [completed] * 2


def test_a_column_of_another_type_and_metadata_that_is_no_object_are_the_datasets_own():
    entry = {"messages": MESSAGES, "model": 5, "completed": "yes", "metadata": "m", "finish_reason": None}
    assert read_entry(entry).columns == {"model": 5, "completed": "yes", "metadata": "m"}


def test_the_first_id_survives_any_number_of_exports():
    assert read_entry({"messages": MESSAGES, "id": "new", "metadata": {"id": "old"}}).columns == {"id": "old"}


@pytest.mark.parametrize("entry", [{"conversations": TURNS}, {"messages": MESSAGES}])
def test_a_system_column_is_the_first_message(entry):
    read = read_entry({**entry, "system": "S"})
    assert read.messages == [{"role": "system", "content": "S"}, *MESSAGES]
    assert read.trained == (2, 4)
    assert read.columns == {}
    none = read_entry({**entry, "system": ""})
    assert (none.messages, none.columns) == (MESSAGES, {})
    again = read_entry({"messages": read.messages, "system": "S"})
    assert again.messages == read.messages


# ── LLaMA-Factory's dialect ──────────────────────────────────────────────────────────────────────────────────────

CALLS = [
    {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"x": "<|im_end|>"}'}},
    {"id": "call_1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]
WITH_CALLS = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "content": "r0", "tool_call_id": "call_0"},
    {"role": "tool", "content": "r1", "tool_call_id": "call_1"},
    {"role": "assistant", "content": "said", "reasoning": "t", "tool_calls": [{**CALLS[1], "id": "call_2"}]},
    {"role": "tool", "content": "r2", "tool_call_id": "call_2"},
    {"role": "assistant", "content": "\nanswer", "reasoning": "t"},
]


def test_rows_of_llamafactory_are_read_as_the_messages_they_were_made_of():
    row = TrainingRow(id="x", messages=WITH_CALLS, trained=(2, 5, 7), tools=[{"function": {"name": "f"}}])
    (record,) = records("llamafactory", row)
    read = read_entry(record)
    assert read.messages == WITH_CALLS
    assert read.trained == (2, 5, 7)


@pytest.mark.parametrize("value", ["oops", "[1]", "{oops", '{"arguments": {}}', "<tool_call>\noops\n</tool_call>"])
def test_a_turn_of_calls_in_which_there_are_none_is_refused(value):
    with pytest.raises(BadRecord, match="turn 0 is from 'function_call'"):
        read_entry({"conversations": [{"from": "function_call", "value": value}]})


@pytest.mark.parametrize("name", ["openai", "hermes", "sharegpt", "trl", "axolotl", "llamafactory", "unsloth"])
def test_a_column_of_the_dataset_is_never_taken_for_the_conversation_whatever_its_name(name):
    own = {
        "system": "You are another.",
        "model": "judge",
        "finish_reason": "length",
        "on_policy": False,
        "timestamp": "noon",
        "completed": False,
    }
    graph, _ = imported({"messages": MESSAGES, "model": "m", "metadata": own})
    (row,) = [row for row in rows_of_graph(graph, own, name="talk") if isinstance(row, TrainingRow)]
    (written,) = preset(name).convert(row)
    again, metadata = imported({**written.record, "model": "m", "metadata": own})
    assert [message["role"] for message in again] == ["user", "assistant", "user", "assistant"]
    assert {sampled.call.model for sampled in again.calls()} == {"m"}
    assert {sampled.call.finish_reason for sampled in again.calls()} == {None}
    assert own.items() <= metadata.items()


def test_hermes_rows_below_the_conversations_own_system_prompt_are_read_as_hermes():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
        {"role": "assistant", "content": "a"},
    ]
    (written,) = preset("hermes", "own").convert(row_of_entry({"messages": said}, "talk"))
    graph, _ = imported(written.record)
    assert [message.get("content") or "" for message in graph.messages()] == ["S", "q", "", "r", "a"]
