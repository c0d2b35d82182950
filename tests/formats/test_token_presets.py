"""Every layout holds the rows it was given, and gives them back bit for bit."""

import json
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stemma import Call
from stemma.core.call import unpack_ids
from stemma.core.exclusions import Rules
from stemma.core.proof import WrittenRow
from stemma.core.token_calls import captured
from stemma.core.token_rows import Standing, filler_row, plan_rows
from stemma.formats.token_preset import Place
from stemma.formats.token_presets import TOKEN_NAMES, token_preset
from token_conversations import Chat, user


def rows_of(chat, rollout="r", reward=1.0, advantage=0.5, group="g"):
    standing = Standing(group=group, reward=reward, advantage=advantage)
    return plan_rows(rollout, captured(chat.graph), Rules(), standing).rows


def split_conversation(words=None, logprobs=True):
    """Two rows: the second begins with an edit."""
    chat = (
        Chat(user("hi there"), words=words).says("hello").hears("and").says("yes indeed", extra={"policy_version": 3})
    )
    chat.graph[2]["content"] = "or"
    return chat.says("no", logprobs=logprobs).hears("?").says("never")


def written(row):
    return WrittenRow(row.ids, row.labels(), row.logprobs())


def tokens_of(row):
    return WrittenRow(row.ids, row.labels, row.logprobs)


def through_json(record):
    return msgspec.json.decode(msgspec.json.encode(record))


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_a_preset_gives_back_the_rows_it_wrote(name):
    preset = token_preset(name)
    rows = rows_of(split_conversation(), "r0") + rows_of(split_conversation(), "r1", reward=0.0, advantage=-0.5)
    read = [row for record in preset.write(rows) for row in preset.read(through_json(record))]
    assert [tokens_of(row) for row in read] == [written(row) for row in rows]
    assert [row.faults for row in read] == [()] * len(rows)


@pytest.mark.parametrize("name", ["tokens", "tree"])
def test_logprobs_that_were_not_given_stay_unknown(name):
    preset = token_preset(name)
    rows = rows_of(split_conversation(logprobs=False))
    read = [row for record in preset.write(rows) for row in preset.read(through_json(record))]
    assert [tokens_of(row) for row in read] == [written(row) for row in rows]
    assert [row.faults for row in read] == [()] * len(rows)


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_a_group_without_rows_writes_nothing(name):
    assert token_preset(name).write([]) == []


def record(name, number=0):
    return through_json(token_preset(name).write(rows_of(split_conversation()))[number])


def test_a_row_of_tokens_has_labels_where_it_is_trained_and_says_whose_they_are():
    row = record("tokens")
    trained = [i for i, label in enumerate(row["labels"]) if label != -100]
    spans = list(zip(row["starts"], row["ends"], strict=True))
    assert trained == [i for start, end in spans for i in range(start, end)]
    assert all(row["labels"][i] == row["input_ids"][i] for i in trained)
    assert len(row["calls"]) == len(spans) == 2
    assert row["policy_versions"] == ["3"]
    assert row["policy_starts"] == [row["starts"][1]]


def test_prompt_and_response_meet_where_the_first_trained_token_begins():
    grpo, verl, slime = record("trl-grpo"), record("verl"), record("slime")
    assert grpo["prompt_ids"] + grpo["completion_ids"] == slime["tokens"] == verl["prompt_ids"] + verl["response_ids"]
    assert grpo["env_mask"][0] == grpo["env_mask"][-1] == 1
    assert len(grpo["env_mask"]) == len(grpo["logprobs"]) == len(grpo["completion_ids"]) == slime["response_length"]
    assert slime["loss_mask"] == verl["response_mask"] == grpo["env_mask"]
    assert (verl["reward_score"], verl["num_turns"], verl["extra_fields"]["uid"]) == (1.0, 2, "g")


def test_an_atropos_group_marks_what_is_masked_in_atropos_own_way():
    group = record("atropos")
    for ids, masks, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
        for token, mask, logprob in zip(ids, masks, logprobs, strict=True):
            assert (mask == -100 and logprob == 1.0) or (mask == token and logprob < 0)
    assert group["scores"] == [1.0, 1.0]
    weights = [one["weight"] for one in group["overrides"]]
    assert [one["finish_reason"] for one in group["overrides"]] == [None, None]
    assert sum(weights) == pytest.approx(1)
    assert [max(one) for one in group["advantages"]] == pytest.approx([0.5 * weight for weight in weights])


def test_the_columns_of_a_skyrl_group_are_as_long_as_it_has_rows():
    output = record("skyrl")
    assert output["is_last_step"] == [False, True]
    assert {len(output[name]) for name in ("prompt_token_ids", "response_ids", "rewards", "loss_masks")} == {2}


def test_skyrl_knows_a_rollout_by_its_prompt_and_its_number_among_the_samples():
    rows = rows_of(split_conversation(), "r0", group="p") + rows_of(split_conversation(), "r1", reward=0.0, group="p")
    [output] = token_preset("skyrl").write(rows)
    ids = [(one["instance_id"], one["repetition_id"]) for one in output["trajectory_ids"]]
    assert ids == [("p", 0), ("p", 0), ("p", 1), ("p", 1)]
    assert output["is_last_step"] == [False, True, False, True]
    assert output["rewards"] == [1.0, 1.0, 0.0, 0.0]


def test_slime_has_numbers_for_groups_rows_and_rollouts_and_the_status_follows_the_finish_reason():
    cut = Chat(user("hi")).says("on and on", finish_reason="length")
    rows = rows_of(split_conversation(), "r0") + rows_of(cut, "r1")
    samples = token_preset("slime").write(rows, Place(group=4, row=10, rollout=7))
    assert [(s["group_index"], s["index"], s["rollout_id"]) for s in samples] == [(4, 10, 7), (4, 11, 7), (4, 12, 8)]
    assert [s["status"] for s in samples] == ["completed", "completed", "truncated"]
    assert [s["metadata"]["rollout_id"] for s in samples] == ["r0", "r0", "r1"]


def test_a_row_says_how_its_calls_were_sampled():
    plain = {"params": {"temperature": 0.7, "top_p": 0.9}, "finish_reason": "stop"}
    chat = Chat(user("hi")).says("hello", **plain).hears("and").says("yes", **{**plain, "finish_reason": "length"})
    [row] = token_preset("tokens").write(rows_of(chat))
    assert (row["temperature"], row["top_p"], row["constrained"], row["finish_reason"]) == (0.7, 0.9, False, "length")
    assert row["on_policy"]
    chat.hears("so").says("well", params={"temperature": 1, "grammar": "root ::= [a]"})
    [row] = token_preset("tokens").write(rows_of(chat))
    assert (row["temperature"], row["top_p"], row["constrained"], row["finish_reason"]) == (None, None, True, None)
    assert not row["on_policy"]


def test_a_reply_that_was_cut_is_trained_without_an_end_that_nobody_sampled():
    chat = Chat(user("hi"))
    chat.graph.record({"role": "assistant", "content": "on and"}, Call(
        model="m", prompt_ids=[1, 2], sampled_ids=[5, 6], logprobs=[-1, -1], finish_reason="length",
    ))  # fmt: skip
    [row] = token_preset("tokens").write(rows_of(chat))
    assert (row["input_ids"], row["labels"]) == ([1, 2, 5, 6], [-100, -100, 5, 6])
    assert row["finish_reason"] == "length"


def forced_conversation():
    """Forced tokens at the beginning, within and at the very end of a row; another row shares the first of them."""
    forced = {"constraint": "grammar", "forced": [[0, 1], [2, 3]]}
    chat = Chat(user("hi")).says("so it is", extra=forced).hears("and").says("be it then", extra={"forced": [[3, 4]]})
    chat.graph[2]["content"] = "or"
    return chat.says("so it goes", extra=forced)


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_forced_tokens_stand_in_every_preset_untrained(name):
    preset, rows = token_preset(name), rows_of(forced_conversation())
    read = [row for record in preset.write(rows) for row in preset.read(through_json(record))]
    assert [tokens_of(row) for row in read] == [written(row) for row in rows]
    assert [row.faults for row in read] == [()] * len(rows)
    assert sum(row.trained for row in rows) == 12 - 5
    assert sum(label != -100 for row in read for label in unpack_ids(row.labels)) == 12 - 5


@pytest.mark.parametrize("name", ["atropos", "trl-grpo"])
def test_a_filler_trains_nothing(name):
    rows = rows_of(split_conversation())
    filled = [*rows, filler_row(rows[0], 0.5)]
    preset = token_preset(name)
    *_, filler = [row for record in preset.write(filled) for row in preset.read(through_json(record))]
    assert set(unpack_ids(filler.labels)) == {-100}
    assert (filler.facts["weight"], filler.facts["reward"], filler.faults) == (0.0, 0.5, ())


def test_a_tinker_datum_is_shifted_by_one_and_its_provenance_tiles_it():
    datum = record("tinker")
    tokens, inputs = datum["model_input"]["chunks"][0]["tokens"], datum["loss_fn_inputs"]
    assert tokens[1:] == inputs["target_tokens"][:-1]
    assert {len(value) for value in inputs.values()} == {len(tokens)}
    for spans, column in (("model_input_spans", tokens), ("loss_fn_input_spans", inputs["target_tokens"])):
        assert sum(run["length"] for run in datum[spans]) == len(column)
    kinds = [run["type"] for run in datum["loss_fn_input_spans"]]
    assert kinds == ["prompt", "sampled", "prompt", "sampled"]


@st.composite
def conversations(draw):
    """Rows that branch, repeat and overlap, over an alphabet so small that they often agree."""
    chat = Chat(user("a"))
    for _ in range(draw(st.integers(1, 6))):
        act = draw(st.sampled_from(["says", "says", "hears", "edits", "pops"]))
        if act == "says":
            forced = draw(st.sampled_from([[], [], [[0, 1]], [[1, 2]]]))
            chat.says(draw(st.sampled_from(["a", "b", "a b"])), extra={"forced": forced})
        elif act == "hears":
            chat.hears(draw(st.sampled_from(["a", "b"])))
        elif act == "edits":
            chat.graph[draw(st.integers(0, len(chat.graph) - 1))]["content"] = draw(st.sampled_from(["a", "b"]))
        elif len(chat.graph) > 1:
            chat.graph.pop()
    return chat.says("a")


@settings(max_examples=60)
@given(conversations())
def test_in_a_tree_each_token_sees_exactly_what_it_sees_in_its_row(chat):
    rows = rows_of(chat)
    [tree] = token_preset("tree").write(rows)
    assert [tokens_of(row) for row in token_preset("tree").read(through_json(tree))] == [written(row) for row in rows]
    paths = [list(unpack_ids(row.ids)) for row in rows]
    for at, row in enumerate(tree["trained_by"]):
        seen = [s for s in range(at + 1) if s <= at < tree["subtree_end"][s]]
        ids = [tree["input_ids"][s] for s in seen]
        assert [tree["position_ids"][s] for s in seen] == list(range(len(seen)))
        assert tree["pred_idx"][at] == (seen[-2] if len(seen) > 1 else -1)
        if row >= 0:
            assert ids == paths[row][: len(ids)]


def test_a_tree_counts_what_rows_share_once_and_keeps_twins_apart():
    chat = Chat(user("hi")).says("hello").hears("and").says("yes")
    chat.graph.pop()
    rows = rows_of(chat.says("yes"))
    [tree] = token_preset("tree").write(rows)
    assert len(tree["input_ids"]) == len(unpack_ids(rows[0].ids)) + 2  # `yes </>` was sampled twice: two events
    assert sorted(set(tree["trained_by"])) == [-1, 0, 1]


def test_floats_are_written_so_that_they_come_back_bit_for_bit():
    value = json.loads(msgspec.json.encode(math.pi))
    assert value == math.pi
