"""Every layout holds the rows it was given, and gives them back bit for bit."""

import json
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stemma.core.call import unpack_ids
from stemma.core.exclusions import Rules
from stemma.core.proof import WrittenRow
from stemma.core.token_calls import captured
from stemma.core.token_rows import Standing, plan_rows
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


def through_json(record):
    return msgspec.json.decode(msgspec.json.encode(record))


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_a_preset_gives_back_the_rows_it_wrote(name):
    preset = token_preset(name)
    rows = rows_of(split_conversation(), "r0") + rows_of(split_conversation(), "r1", reward=0.0, advantage=-0.5)
    read = [row for record in preset.write(rows) for row in preset.read(through_json(record))]
    assert read == [written(row) for row in rows]


@pytest.mark.parametrize("name", ["tokens", "tree"])
def test_logprobs_that_were_not_given_stay_unknown(name):
    preset = token_preset(name)
    rows = rows_of(split_conversation(logprobs=False))
    read = [row for record in preset.write(rows) for row in preset.read(through_json(record))]
    assert read == [written(row) for row in rows]


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
    assert sum(weights) == pytest.approx(1)
    assert [max(one) for one in group["advantages"]] == pytest.approx([0.5 * weight for weight in weights])


def test_the_columns_of_a_skyrl_group_are_as_long_as_it_has_rows():
    output = record("skyrl")
    assert output["is_last_step"] == [False, True]
    assert [one["repetition_id"] for one in output["trajectory_ids"]] == [0, 1]
    assert {len(output[name]) for name in ("prompt_token_ids", "response_ids", "rewards", "loss_masks")} == {2}


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
            chat.says(draw(st.sampled_from(["a", "b", "a b"])))
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
    assert token_preset("tree").read(through_json(tree)) == [written(row) for row in rows]
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
