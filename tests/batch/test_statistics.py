import math
from statistics import mean

from hypothesis import given, settings
from hypothesis import strategies as st

from stemma.batch.policies import Policies
from stemma.batch.record import Failure, Record
from stemma.batch.statistics import Tally, spread
from stemma.formats.entries import UNKNOWN, ToolUse

KNOWN = ("read_file", "terminal")
COUNTS = st.integers(0, 5)
RECORDS = st.builds(
    Record,
    key=st.text("ab", min_size=1, max_size=3),
    status=st.sampled_from(["running", "completed", "stopped", "failed"]),
    stop=st.sampled_from([None, "answer", "turns"]),
    failure=st.one_of(st.none(), st.builds(Failure, st.sampled_from(["A", "B"]), st.just("t"))),
    api_calls=COUNTS,
    with_reasoning=COUNTS,
    usage=st.dictionaries(st.sampled_from(["prompt_tokens", "total_tokens"]), COUNTS),
    cost=st.one_of(st.none(), st.floats(0, 1)),
    latencies=st.lists(st.floats(0, 10), max_size=3),
    seconds=st.floats(0, 100),
    tools=st.dictionaries(st.sampled_from([*KNOWN, "made up"]), st.builds(ToolUse, COUNTS, COUNTS, COUNTS)),
    finished=st.one_of(st.none(), st.floats(0, 1e9)),
    reward=st.one_of(st.none(), st.floats(-1, 1)),
)


def numbers(records, policies=None):
    tally = Tally(KNOWN, policies or Policies())
    for record in records:
        tally.add(record)
    return tally.numbers({"run_name": "r"})


@settings(max_examples=40)
@given(st.lists(RECORDS, max_size=12), st.randoms(use_true_random=False))
def test_the_order_in_which_tasks_ended_changes_nothing(records, chance):
    shuffled = records[:]
    chance.shuffle(shuffled)
    assert numbers(shuffled) == numbers(records)


@settings(max_examples=40)
@given(st.lists(RECORDS, max_size=12))
def test_every_task_is_counted_once_and_every_ended_one_is_exported_or_left_out(records):
    found = numbers(records)
    tasks = found["tasks"]
    assert tasks["begun"] == len(records) == sum(tasks[s] for s in ("completed", "stopped", "failed", "running"))
    assert found["exported"] + sum(found["left_out"].values()) == tasks["completed"] + tasks["stopped"]
    assert sum(found["stop_reasons"].values()) == len(records)
    uses = found["tool_statistics"]
    assert list(uses) == [*KNOWN, UNKNOWN]
    assert sum(use["count"] for use in uses.values()) == sum(u.count for r in records for u in r.tools.values())


def test_all_known_tools_are_listed_and_others_stand_together():
    found = numbers([Record(key="a", tools={"made up": ToolUse(2, 0, 2), "terminal": ToolUse(4, 3, 1)})])
    uses = found["tool_statistics"]
    assert uses["read_file"] == {"count": 0, "success": 0, "failure": 0, "success_rate": 0.0, "failure_rate": 0.0}
    assert uses["terminal"]["success_rate"] == 75.0
    assert uses[UNKNOWN]["failure"] == 2


def test_errors_are_counted_by_class_only_while_they_stand():
    broken = Failure("RateLimited", "slow down")
    found = numbers(
        [Record(key="a", status="failed", failure=broken), Record(key="b", status="completed", failure=broken)]
    )
    assert found["errors"] == {"RateLimited": 1}


def test_reasoning_is_counted_over_ended_conversations():
    found = numbers(
        [
            Record(key="a", status="completed", api_calls=3, with_reasoning=2),
            Record(key="b", status="stopped", api_calls=1),
            Record(key="c", status="failed", api_calls=9, with_reasoning=9),
        ]
    )["reasoning_statistics"]
    assert found == {
        "total_assistant_turns": 4,
        "turns_with_reasoning": 2,
        "turns_without_reasoning": 2,
        "coverage_percent": 50.0,
        "conversations_without_reasoning": 1,
    }


LARGE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(LARGE, st.floats(0, allow_infinity=False, allow_nan=False)), min_size=1, max_size=8))
def test_no_reward_or_cost_is_too_large_to_be_counted(pairs):
    found = numbers([Record(key=str(i), reward=reward, cost=cost) for i, (reward, cost) in enumerate(pairs)])
    rewards = [reward for reward, _ in pairs]
    assert found["rewards"]["scored"] == len(pairs)
    rounding = 1e-3 + 1e-15 * max(map(abs, rewards))
    assert min(rewards) - rounding <= found["rewards"]["mean"] <= max(rewards) + rounding
    assert math.isfinite(found["cost"])


def test_messages_of_reward_functions_are_counted_the_most_frequent_first():
    records = [Record(key=str(i), reward_failure=Failure("KeyError", f"'{i // 2}'")) for i in range(50)]
    found = numbers([*records, Record(key="x", reward_failure=Failure("KeyError", "'7'"))])["reward_errors"]
    assert next(iter(found.items())) == ("KeyError: '7'", 3)
    assert sum(found.values()) == 51
    assert found["others"] == 51 - sum(number for text, number in found.items() if text != "others")


def test_an_empty_run_has_numbers_too():
    found = numbers([])
    assert (found["exported"], found["cost"], found["latency"]) == (0, None, {"call": None, "conversation": None})


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=60))
def test_percentiles_are_values_that_occurred(values):
    found = spread(values)
    rounded = {round(value, 4) for value in values}
    assert {found["p50"], found["p90"], found["p99"], found["max"]} <= rounded
    assert found["p50"] <= found["p90"] <= found["p99"] <= found["max"] == round(max(values), 4)
    assert math.isclose(found["mean"], mean(values), abs_tol=1e-3)
