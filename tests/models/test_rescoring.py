"""Logprobs computed again by the real model: those captured are found again, and another context is not."""

import asyncio

import pytest

from embedded import smollm2
from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.models.protocol import Request
from stemma.models.rescoring import NOISE, Difference, difference, rescore


def test_what_the_model_sampled_it_scores_as_it_did():
    model = smollm2(params={"max_tokens": 12, "seed": 1})

    async def ask():
        try:
            reply = await model.reply(Request(messages=[{"role": "user", "content": "Name a colour."}]))
            prompt, sampled = unpack_ids(reply.call.prompt_ids), unpack_ids(reply.call.sampled_ids)
            ids, places = [*prompt, *sampled], range(len(prompt), len(prompt) + len(sampled))
            same = await rescore(model._engine, ids, places)
            less = ids[len(prompt) // 2 :]  # the same tokens, after half of what the model saw
            elsewhere = await rescore(model._engine, less, range(len(less) - len(sampled), len(less)))
            return unpack_logprobs(reply.call.logprobs), same, elsewhere
        finally:
            await model.close()

    captured, same, elsewhere = asyncio.run(ask())
    assert difference(captured, same).mean < NOISE
    assert difference(captured, elsewhere).mean > NOISE


def test_the_difference_leaves_out_what_is_not_known():
    found = difference([-1.0, float("nan"), -3.0], [-1.0, -2.0, -2.5])
    assert found == Difference(tokens=2, mean=0.25, p99=0.0, largest=0.5)
    assert difference([], []) == Difference(0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("count", [1, 100, 1_000])
def test_ninety_nine_of_a_hundred_lie_within_the_p99(count):
    found = difference([0.0] * count, [float(n) for n in range(count)])
    assert sum(n <= found.p99 for n in range(count)) >= 0.99 * count - 1
