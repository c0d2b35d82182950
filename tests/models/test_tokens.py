"""Promises of token ids and logprobs: from wherever they stand, and only if all that is said agrees."""

import pytest

from stemma.models.tokens import Tokens, read_tokens

IDS, PROMPT, LOGPROBS = [5, 6, 7], [1, 2], [-0.5, -0.25, -0.0]
USAGE = {"prompt_tokens": 2, "completion_tokens": 3}


def entries(logprobs=LOGPROBS, ids=None, named=False):
    made = [{"token": "x", "logprob": value} for value in logprobs]
    for entry, one in zip(made, ids or (), strict=False):
        entry.update({"token": f"token_id:{one}"} if named else {"id": one})
    return {"content": made}


ENGINES = {
    "vllm": ({"prompt_token_ids": PROMPT}, {"token_ids": IDS, "logprobs": entries()}),
    "vllm, named": ({"prompt_token_ids": PROMPT}, {"logprobs": entries(ids=IDS, named=True)}),
    "sglang": ({}, {"prompt_token_ids": PROMPT, "token_ids": IDS, "logprobs": entries()}),
    "sglang, meta": (
        {},
        {
            "prompt_token_ids": PROMPT,
            "meta_info": {"output_token_logprobs": [[p, i, "x"] for p, i in zip(LOGPROBS, IDS, strict=True)]},
            "logprobs": entries(),
        },
    ),
    "sglang, sglext": (
        {"sglext": {"input_ids": PROMPT, "output_ids": [[9], IDS]}},
        {"index": 1, "logprobs": entries()},
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_has_its_place_for_them(engine):
    payload, choice = ENGINES[engine]
    assert read_tokens(payload, choice, USAGE) == Tokens(prompt_ids=PROMPT, sampled_ids=IDS, logprobs=LOGPROBS)


def test_llama_cpp_gives_no_prompt_ids():
    tokens = read_tokens({}, {"logprobs": entries(ids=IDS)}, USAGE)
    assert tokens == Tokens(sampled_ids=IDS, logprobs=LOGPROBS)
    verbose = {"__verbose": {"tokens": IDS}}
    assert read_tokens(verbose, {"logprobs": entries(ids=IDS)}, USAGE) == tokens
    assert read_tokens({"__verbose": {"tokens": []}}, {"logprobs": entries(ids=IDS)}, USAGE) == tokens


def test_nothing_said_is_nothing_kept_and_nothing_wrong():
    assert read_tokens({}, {}, USAGE) == Tokens()
    assert read_tokens({"prompt_token_ids": None}, {"token_ids": None, "logprobs": None}, USAGE) == Tokens()


def test_logprobs_without_ids_are_not_tokens():
    assert read_tokens({}, {"logprobs": entries()}, USAGE) == Tokens()


def test_ids_without_logprobs_are_kept():
    assert read_tokens({}, {"token_ids": IDS}, {}) == Tokens(sampled_ids=IDS)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"logprobs": entries(LOGPROBS[:2])}, "3 sampled ids came with 2 logprobs"),
        ({"logprobs": entries([-0.5, float("nan"), -1])}, "a logprob is nan"),
        ({"logprobs": entries([-0.5, None, -1])}, "a logprob is None"),
        ({"logprobs": entries([-0.5, float("-inf"), -1])}, "a logprob is -inf"),
        ({"logprobs": entries([-0.5, -9999.0, -1])}, "a logprob is -9999.0"),
        ({"logprobs": entries([-0.5, 0.5, -1])}, "a logprob is 0.5"),
        ({"logprobs": entries([-0.5, True, -1])}, "a logprob is True"),
        ({"logprobs": entries(ids=[5, 6, 8])}, "differ between the places"),
        ({"token_ids": [5, 6, -7]}, "no token id"),
        ({"token_ids": [5, 6, 2**31]}, "no token id"),
        ({"token_ids": [5, 6, "7"]}, "no token id"),
        ({"token_ids": [5, 6, True]}, "no token id"),
        ({"token_ids": "567"}, "no token id"),
        ({"token_ids": [5, 6], "logprobs": None}, "the usage counts 3 sampled tokens, but 2 ids came"),
        ({"prompt_token_ids": [1, 3]}, "the prompt ids differ"),
        ({"meta_info": {"output_token_logprobs": [[-0.5, 5]]}}, "differ between the places"),
        ({"meta_info": {"output_token_logprobs": [1, 2, 3]}}, "no token id"),
    ],
)
def test_what_does_not_agree_is_not_kept_and_says_why(change, why):
    payload, choice = ENGINES["vllm"]
    tokens = read_tokens(payload, {**choice, **change}, USAGE)
    assert (tokens.prompt_ids, tokens.sampled_ids, tokens.logprobs) == (None, None, None)
    assert why in tokens.why


def test_a_prompt_that_the_usage_counts_otherwise_is_not_kept():
    payload, choice = ENGINES["vllm"]
    tokens = read_tokens(payload, choice, {"prompt_tokens": 3, "completion_tokens": 3})
    assert tokens == Tokens(why="the usage counts 3 prompt tokens, but 2 ids came")


def test_ids_that_stand_only_among_logprobs_need_a_usage():
    """llama.cpp leaves out a token that ends inside a character."""
    choice = {"logprobs": entries(ids=IDS)}
    assert "no usage confirms" in read_tokens({}, choice, {}).why
    assert "no usage confirms" in read_tokens({}, choice, USAGE, alone=False).why
    assert "usage counts 4" in read_tokens({}, choice, {"completion_tokens": 4}).why


def test_the_usage_of_several_choices_counts_none_of_them():
    payload, choice = ENGINES["vllm"]
    tokens = read_tokens(payload, choice, {"prompt_tokens": 2, "completion_tokens": 12}, alone=False)
    assert tokens.sampled_ids == IDS
