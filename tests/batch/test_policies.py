import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.batch.policies import NO_REASONING, NOT_EXPORTABLE, UNKNOWN_TOOL, UNSCORED, Policies, left_out
from stemma.batch.record import Failure, Record
from stemma.formats.entries import ToolUse

GOOD = {"key": "k", "status": "completed", "with_reasoning": 1, "offered": ["add"], "tools": {"add": ToolUse(1, 1)}}


def record(**changes):
    return Record(**{**GOOD, **changes})


@pytest.mark.parametrize(
    ("changes", "reason", "switch"),
    [
        ({}, None, {}),
        ({"with_reasoning": 0}, NO_REASONING, {"keep_no_reasoning": True}),
        ({"tools": {"todo": ToolUse(1)}}, UNKNOWN_TOOL, {"keep_unknown_tools": True}),
    ],
)
def test_each_policy_has_a_name_and_a_switch(changes, reason, switch):
    assert Policies().reason(record(**changes)) == reason
    assert Policies(**switch).reason(record(**changes)) is None


def test_who_asks_for_rewards_gets_only_what_has_one():
    assert Policies(rewarded=True).reason(record()) == UNSCORED
    assert Policies(rewarded=True).reason(record(reward=0.0)) is None
    assert Policies().reason(record()) is None


def test_what_could_not_be_written_as_an_entry_is_left_out_and_tried_again():
    broken = record(export_failure=Failure("BadMessage", "no such role"))
    assert Policies().reason(broken) == NOT_EXPORTABLE
    assert Policies().wants(broken)
    assert not Policies().wants(record(with_reasoning=0))


def test_a_tool_that_exists_and_was_not_offered_counts_as_unknown():
    assert Policies().reason(record(tools={"read_file": ToolUse(1, 1)})) == UNKNOWN_TOOL


@given(st.lists(st.tuples(st.sampled_from(["completed", "stopped", "failed", "running"]), st.integers(0, 1))))
def test_only_ended_conversations_are_counted_and_each_once(given):
    records = [record(status=status, with_reasoning=thoughts) for status, thoughts in given]
    ended = [one for one in records if one.ended and not one.with_reasoning]
    assert left_out(records, Policies()) == {
        NO_REASONING: len(ended),
        UNKNOWN_TOOL: 0,
        UNSCORED: 0,
        NOT_EXPORTABLE: 0,
    }
