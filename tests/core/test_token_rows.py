"""Rows of a rollout: spans, weights, exclusions and receipts."""

import pytest

from stemma.core.advantages import advantages
from stemma.core.call import pack_ids, unpack_ids, unpack_logprobs
from stemma.core.exclusions import Rules
from stemma.core.token_calls import captured
from stemma.core.token_rows import PolicySpan, Standing, plan_rows
from token_conversations import Chat, user


def plan(chat, elsewhere=(), render=None, reward=None, **rules):
    standing = Standing(group="g", reward=reward)
    return plan_rows("r", captured(chat.graph), Rules(**rules), standing, render, elsewhere)


def words(chat, row):
    """The row as text, with what is trained in brackets."""
    text = {number: word for word, number in chat.words.known.items()}
    return " ".join(f"[{text[i]}]" if m else text[i] for i, m in zip(unpack_ids(row.ids), row.mask(), strict=True))


def test_a_row_trains_what_was_sampled_and_shows_the_rest_as_context():
    chat = Chat(user("hi")).says("hello").hears("and").says("yes")
    [row] = plan(chat).rows
    assert words(chat, row) == "<user> hi </> <assistant> [hello] [</>] <user> and </> <assistant> [yes] [</>]"
    ids, labels, logprobs = unpack_ids(row.ids), unpack_ids(row.labels()), unpack_logprobs(row.logprobs())
    assert [label for label in labels if label != -100] == [i for i, m in zip(ids, row.mask(), strict=True) if m]
    assert list(logprobs) == [0, 0, 0, 0, -0.5, -0.625, 0, 0, 0, 0, -0.5, -0.625]


def test_the_weights_of_a_split_rollout_add_up_to_one_in_proportion_to_what_is_trained():
    chat = Chat(user("hi")).says("one two three")
    chat.graph[0]["content"] = "ho"
    rows = plan(chat.hears("and").says("yes")).rows
    assert [row.weight for row in rows] == [4 / 6, 2 / 6]


def test_subagents_are_rows_of_the_same_rollout():
    chat = Chat(user("hi")).says("ask")
    child = Chat(user("task"), words=chat.words).says("done")
    chat.graph.append({"role": "tool", "tool_call_id": "1", "content": "done"}, contains=child.graph)
    rows = plan(chat.says("fine")).rows
    assert [len(row.spans) for row in rows] == [2, 1]
    assert {row.rollout for row in rows} == {"r"}
    assert sum(row.weight for row in rows) == pytest.approx(1)


def test_versions_of_the_policy_are_told_from_the_token_on_where_they_begin():
    chat = Chat(user("hi")).says("a b", extra={"policy_version": 7}).hears("so")
    chat.says("c d", extra={"policy_spans": [[0, "7"], [1, "8"]]})
    found = plan(chat)
    first, second = found.rows[0].spans
    later = second.start
    assert found.rows[0].policy == (PolicySpan(first.start, "7"), PolicySpan(later, "7"), PolicySpan(later + 1, "8"))
    assert found.policies == {"7": 2, "8": 1}


def test_calls_of_several_models_never_share_a_row():
    chat = Chat(user("hi")).says("one").hears("and").says("two", model="other")
    assert [row.model for row in plan(chat).rows] == ["m", "other"]


@pytest.mark.parametrize(
    ("said", "rules", "reason"),
    [
        ({"extra": {"delivered": False}}, {}, "undelivered"),
        ({"extra": {"trainable": False}}, {}, "untrainable"),
        ({"tokens": False}, {}, "no tokens"),
        ({"tokens": False, "extra": {"tokens": "the usage counts 3"}}, {}, "failed gate"),
        ({"tokens": False, "prompt_ids": [1], "sampled_ids": []}, {}, "nothing sampled"),
        ({"tokens": False, "prompt_ids": [], "sampled_ids": [1]}, {}, "no prompt"),
        ({"model": "judge"}, {"model": "m"}, "other model"),
        ({"logprobs": False}, {"needs_logprobs": True}, "no logprobs"),
        ({"extra": {"ephemeral": "be brief"}}, {}, "ephemeral"),
        ({"extra": {"prefill": [user("x")]}}, {}, "ephemeral"),
        ({}, {"needs_reward": True}, "no reward"),
        ({}, {"max_length": 5}, "over-long"),
    ],
)
def test_each_reason_for_which_a_call_is_not_trained(said, rules, reason):
    chat = Chat(user("hi")).says("hello", **said)
    found = plan(chat, **rules)
    assert [one.reason for one in found.exclusions] == [reason]
    assert not found.rows
    assert not found.receipts


def test_a_call_under_an_ephemeral_prompt_is_trained_as_sampled_if_one_says_so():
    chat = Chat(user("hi")).says("hello", extra={"ephemeral": "be brief"})
    [row] = plan(chat, ephemeral="include").rows
    assert words(chat, row) == "<user> hi </> be brief <assistant> [hello] [</>]"
    assert row.on_policy


def test_distilling_shows_the_context_without_it_and_marks_the_row_as_off_policy():
    chat = Chat(user("hi")).says("hello", extra={"ephemeral": "be brief"})
    plain = chat.words("<user> hi </> <assistant>")
    found = plan(chat, ephemeral="distill", render=lambda one: pack_ids(plain))
    [row], [receipt] = found.rows, found.receipts
    assert words(chat, row) == "<user> hi </> <assistant> [hello] [</>]"
    assert not row.on_policy
    assert receipt.context == "distilled"
    assert all(value != value for value in unpack_logprobs(row.logprobs())[-2:])  # not known in this context


def test_calls_that_another_rollout_accounts_for_are_context_here():
    chat = Chat(user("hi")).says("one").hears("and").says("two")
    first = captured(chat.graph)[0].id
    found = plan(chat, elsewhere={first})
    assert words(chat, found.rows[0]).count("[") == 2
    assert [receipt.call for receipt in found.receipts] != [first]
    assert not found.exclusions


def test_advantages_count_rollouts_and_leave_the_lonely_at_zero():
    found = advantages({"a": 1.0, "b": 0.0, "c": 0.0, "d": None})
    assert found["a"] == pytest.approx(2 / 3 / (3**-0.5 + 1e-4))
    assert found["b"] == found["c"] < 0
    assert found["d"] is None
    assert advantages({"a": 3.0}) == {"a": 0.0}


def test_advantages_of_rewards_that_no_sum_of_squares_can_hold():
    found = advantages({"a": 1e308, "b": -1e308, "c": None})
    assert found == {"a": pytest.approx(0.7071, abs=1e-4), "b": pytest.approx(-0.7071, abs=1e-4), "c": None}
