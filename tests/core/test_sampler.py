"""What a call says of how its tokens were chosen."""

import pytest

from stemma import Call
from stemma.core.sampler import forced_of, sampler_of

TOOL = {"type": "function", "function": {"name": "f", "strict": True}}


def call(tools=None, extra=None, **params):
    return Call(model="m", tools=tools, params=params, extra=extra or {}, prompt_ids=[1], sampled_ids=[2, 3, 4])


def test_a_call_of_which_nothing_is_said_is_free_and_its_temperature_is_not_known():
    sampler = sampler_of(call())
    assert sampler.free
    assert (sampler.temperature, sampler.top_p, sampler.logprobs) == (None, None, None)


def test_temperature_and_the_cut_of_the_tail_leave_a_sampler_free():
    sampler = sampler_of(call(temperature=1, top_p=0.9, top_k=40, min_p=0.05, logprobs=True))
    assert sampler.free
    assert (sampler.temperature, sampler.top_p) == (1.0, 0.9)


def test_what_the_engine_says_it_used_counts_over_what_was_asked_for():
    asked = call(temperature=2.0, extra={"sampler": {"temperature": 0.3, "top_p": 0.95, "logprobs": "model"}})
    sampler = sampler_of(asked)
    assert (sampler.temperature, sampler.top_p, sampler.logprobs) == (0.3, 0.95, "model")


@pytest.mark.parametrize(
    "params",
    [
        {"grammar": "root ::= [a]"},
        {"json_schema": {"type": "object"}},
        {"response_format": {"type": "json_object"}},
        {"guided_choice": ["a", "b"]},
        {"structured_outputs": {"regex": "a"}},
        {"ebnf": "root ::= [a]"},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tools": [TOOL]},
        {"extra": {"constraint": {"kind": "grammar"}}},
    ],
)
def test_whatever_leaves_fewer_choices_is_a_constraint(params):
    assert sampler_of(call(**params)).constrained
    assert not sampler_of(call(**params)).free


def test_what_constrains_nothing_is_no_constraint():
    assert sampler_of(call(response_format={"type": "text"}, tool_choice="auto", grammar="", guided_json=None)).free


def test_penalties_and_biases_are_named_unless_they_are_neutral():
    moved = call(repeat_penalty=1.1, presence_penalty=0.5, logit_bias={"5": 1}, frequency_penalty=0.0, mirostat=0)
    assert sampler_of(moved).adjusted == ("logit_bias", "presence_penalty", "repeat_penalty")
    assert not sampler_of(moved).free


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ([[0, 1], [2, 3]], [(0, 1), (2, 3)]),
        ([], []),
        (None, []),
        ("yes", []),
        ([[2, 3], [0, 1]], []),  # not from left to right
        ([[0, 4]], []),  # more than was sampled
        ([[1, 1]], []),
    ],
)
def test_forced_runs_are_those_that_fit_what_was_sampled(said, runs):
    assert forced_of(call(extra={"forced": said})) == runs
