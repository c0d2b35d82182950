"""What a reply cost, in US dollars: as the endpoint said, or by a price list, or not known; and what one may cost.

>>> prices = Prices(prompt=2.0, completion=8.0, cached=0.5)
>>> usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 600}}
>>> round(cost_of(usage, prices), 6)
0.0019
>>> cost_of({"prompt_tokens": 10, "cost": 0.25}, prices)
0.25
>>> cost_of(usage, None) is None
True
"""

from math import isfinite
from typing import Any

import msgspec

from stemma.models.protocol import Model, Request


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    prompt: float
    completion: float
    cached: float | None = None
    """For prompt tokens the endpoint had cached; None: no rebate."""


def cost_of(usage: dict[str, Any], prices: Prices | None) -> float | None:
    """None means not known, never zero."""
    said = usage.get("cost")
    if isinstance(said, int | float) and not isinstance(said, bool) and isfinite(said) and said >= 0:
        return float(said)
    if prices is None or "prompt_tokens" not in usage or "completion_tokens" not in usage:
        return None
    cached = min(_cached(usage), usage["prompt_tokens"])
    fresh = usage["prompt_tokens"] - cached
    rebate = prices.prompt if prices.cached is None else prices.cached
    return float(fresh * prices.prompt + cached * rebate + usage["completion_tokens"] * prices.completion) / 1e6


def _cached(usage: dict[str, Any]) -> int:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if type(cached) is int and cached > 0 else 0


HOW_TO_PRICE = (
    "set models.NAME.prices in the config (`prompt` and `completion`, in US dollars for a million tokens) and use it "
    "as -m NAME, give prices=Prices(…) to OpenAIModel in Python, or set a limit in tokens"
)


class Most(msgspec.Struct, frozen=True):
    """What a call may use, as far as it can be known before."""

    prompt: int = 0
    """Tokens of the question, estimated from its text."""
    reply: int | None = None
    """The most tokens of the reply; None where no parameter bounds it."""
    cost: float | None = None
    """The most dollars of the call; None without prices, or without such a bound."""


_CHARACTERS = 3
"""Characters of a token, rather too few than too many: too much is then reserved."""
_BOUNDS = ("max_completion_tokens", "max_tokens", "n_predict")


def most_of(model: Model, request: Request) -> Most:
    """What a call may use: by its text, its `max_tokens`, and the model's prices."""
    text = sum(len(str(message)) for message in request.messages) + len(str(request.tools or ""))
    prompt = text // _CHARACTERS
    params = {**getattr(model, "params", {}), **request.params}
    bounds = [params[name] for name in _BOUNDS if type(params.get(name)) is int and params[name] > 0]
    reply = max(bounds, default=None)
    prices: Prices | None = getattr(model, "prices", None)
    if prices is None or reply is None:
        return Most(prompt, reply)
    return Most(prompt, reply, (prompt * prices.prompt + reply * prices.completion) / 1_000_000)


def tells_cost(model: Model) -> bool | None:
    """Whether a model's replies come with what they cost; None where only a reply will show."""
    told: bool | None = getattr(model, "tells_cost", None)
    return told
