"""What a model itself thinks of tokens that were sampled: logprobs computed again, one token at a time.

Each token is asked for from the exact ids before it, with a bias that leaves the model no other choice; the logprob
told is the one before any bias. The prompt's beginning stays in the engine's memory, so a token costs one step.

How much may differ: the same file on the same machine gives the same numbers, or nearly; quantised kernels differ by a
mean of about 0.06 between batch shapes, and other engines or precisions by more. A mean far above that says that
another model, template or context was at work. `tests/models/test_rescoring.py` runs it.
"""

from collections.abc import Iterable, Sequence
from math import isfinite

import msgspec

from stemma.models.errors import BrokenReply
from stemma.models.local_engine import Connection, Engine

NOISE = 0.06
"""The mean difference that batch shapes alone make."""
_FORCED = 1_000.0


class Difference(msgspec.Struct, frozen=True):
    """How far captured and recomputed logprobs are apart."""

    tokens: int
    mean: float
    p99: float
    largest: float


async def rescore(engine: Engine, ids: Sequence[int], places: Iterable[int]) -> list[float]:
    """The logprob of the token at each of `places`, after all tokens before it."""
    async with engine.connect() as connection:
        return [await _logprob(connection, list(ids[:place]), ids[place]) for place in places]


async def _logprob(connection: Connection, before: list[int], token: int) -> float:
    bias = {"logit_bias": [[token, _FORCED]], "top_k": 1}
    asked = {"prompt": before, "n_predict": 1, "n_probs": 1, "return_tokens": True, "cache_prompt": True}
    said = await connection.post("/completion", {**asked, **bias})
    if said["tokens"] != [token]:
        raise BrokenReply(f"llama.cpp was asked for token {token} and gave {said['tokens']}")
    return float(said["completion_probabilities"][0]["logprob"])


def difference(captured: Iterable[float], recomputed: Iterable[float]) -> Difference:
    """The distances between two lists of logprobs; those not known are left out."""
    pairs = zip(captured, recomputed, strict=True)
    apart = sorted(abs(one - other) for one, other in pairs if isfinite(one) and isfinite(other))
    if not apart:
        return Difference(0, 0.0, 0.0, 0.0)
    return Difference(len(apart), sum(apart) / len(apart), apart[int(0.99 * (len(apart) - 1))], apart[-1])
