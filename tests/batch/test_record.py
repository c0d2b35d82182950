import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stemma import Call, MessageGraph
from stemma.agent.facts import Asking, Compacted, Replied, Stopped, ToolRan, ToolStarted
from stemma.batch.record import ENDED, Failure, Record, as_metadata, failed, failure_of, noted, read_record
from stemma.core.canonical import canonical, decode
from stemma.formats.entries import ToolUse
from stemma.models.protocol import Reply
from stemma.tools.tool import ToolResult

FRESH = Record(key="k", turns_said=1)


def reply(reasoning=None, **call):
    return Reply(message={"role": "assistant", "content": "x", "reasoning": reasoning}, call=Call(model="m", **call))


def ran(name, ok, *children):
    return ToolRan("c1", name, ToolResult(text="t", ok=ok, children=children), 0.1)


def after(*facts, record=FRESH):
    for fact in facts:
        record = noted(record, fact)
    return record


def child(*costs):
    graph = MessageGraph([{"role": "user", "content": "sub"}])
    for cost in costs:
        graph.record({"role": "assistant", "content": "done"}, Call(model="m", cost=cost, usage={"total_tokens": 10}))
    return graph


def test_replies_add_up():
    record = after(
        Asking(1),
        Replied(reply("thought", usage={"total_tokens": 5, "details": {}}, cost=0.25, seconds=1.5)),
        Replied(reply(None, usage={"total_tokens": 7}, seconds=0.5)),
    )
    assert (record.api_calls, record.with_reasoning, record.usage) == (2, 1, {"total_tokens": 12})
    assert (record.cost, record.latencies) == (0.25, [1.5, 0.5])


def test_an_unknown_cost_is_not_zero():
    assert after(Replied(reply())).cost is None


def test_a_tools_own_word_decides_about_its_success():
    record = after(ToolStarted("c1", "add", "{}"), ran("add", True), ran("add", False), ran("made up", False))
    assert record.tools == {"add": ToolUse(2, 1, 1), "made up": ToolUse(1, 0, 1)}


def test_what_subagents_used_is_counted_down_to_the_last_of_them():
    below, above = child(0.5), child(0.25, 0.25)
    above.append({"role": "tool", "tool_call_id": "1", "content": "ok"}, contains=below)
    record = after(ran("delegate_task", True, above))
    assert (record.api_calls, record.cost, record.usage) == (3, 1.0, {"total_tokens": 30})
    assert record.with_reasoning == 0


def test_a_summary_is_a_call_too():
    record = after(Compacted(30, 5, reply("thinking", usage={"total_tokens": 9})))
    assert (record.api_calls, record.with_reasoning, record.usage) == (1, 1, {"total_tokens": 9})


@pytest.mark.parametrize(
    ("reason", "status", "ended"),
    [
        ("answer", "completed", True),
        ("empty", "stopped", True),
        ("length", "stopped", True),
        ("turns", "stopped", True),
        ("seconds", "stopped", True),
        ("context", "stopped", True),
        ("model error", "failed", False),
        ("interrupted", "running", False),
    ],
)
def test_how_a_conversation_ended(reason, status, ended):
    record = after(Stopped(reason, "Kind: text: more"))
    assert (record.status, record.ended) == (status, ended)
    assert record.failure == (Failure("Kind", "text: more") if status == "failed" else None)


def test_a_failure_is_forgotten_when_the_next_attempt_succeeds():
    record = failed(FRESH, failure_of(ValueError("odd")))
    assert (record.failure, record.ended) == (Failure("ValueError", "odd"), False)
    record = after(Stopped("answer"), record=record)
    assert (record.failure, record.status, record.turns_answered) == (None, "completed", 1)
    assert failure_of(RuntimeError()).text == "no more is known"


NAMES = st.text(max_size=5)
COUNTS = st.integers(0, 9)
RECORDS = st.builds(
    Record,
    key=st.text("0123456789abcdef", min_size=16, max_size=16),
    ordinal=COUNTS,
    sample=COUNTS,
    metadata=st.dictionaries(NAMES, st.one_of(NAMES, COUNTS, st.none(), st.lists(COUNTS))),
    status=st.sampled_from(["running", "completed", "stopped", "failed"]),
    failure=st.one_of(st.none(), st.builds(Failure, NAMES, NAMES)),
    cost=st.one_of(st.none(), st.floats(0, 9)),
    tools=st.dictionaries(NAMES, st.builds(ToolUse, COUNTS, COUNTS, COUNTS)),
    latencies=st.lists(st.floats(0, 9)),
    reward=st.one_of(st.none(), st.floats(-1, 1)),
)


@settings(max_examples=50)
@given(RECORDS)
def test_a_record_comes_back_from_the_store_as_it_was(record):
    assert read_record(decode(canonical(as_metadata(record)))) == record
    assert record.ended == (record.status in ENDED)


def test_a_record_that_says_nothing_costs_nothing():
    assert as_metadata(Record(key="k")) == {"key": "k"}
    assert msgspec.structs.replace(Record(key="k"), attempts=2).name == "k-0-0"
