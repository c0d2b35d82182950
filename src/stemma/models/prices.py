"""What a reply cost, in US dollars: as the endpoint said, or by a price list, or not known.

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
