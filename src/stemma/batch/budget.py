"""How much a run may use in all: money or tokens.

A budget is a limit on all calls of a run together, kept as `agent.limits` keeps a conversation's: what calls in flight
may cost is reserved, and it is exceeded by no more than one call. When it is used up no task is started, and those that
run are left where they are; with a larger budget the same command goes on. Money needs the model's prices.
`tests/batch/test_budget.py` proves it.
"""

import re

import msgspec

from stemma.agent.limits import Limits
from stemma.batch.progress import Spending
from stemma.errors import StemmaError
from stemma.models.prices import HOW_TO_PRICE, tells_cost
from stemma.models.protocol import Model

_AMOUNT = re.compile(r"(?P<money>\$)?(?P<number>\d+(\.\d+)?)(?P<scale>[kKmMbB])?\s*(?P<unit>tokens|usd|USD|\$)?")
_SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


class BadBudget(StemmaError):
    """A budget that is neither money nor tokens, or that could not be kept."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What may be used; None is no limit."""

    cost: float | None = None
    tokens: int | None = None

    @property
    def limits(self) -> Limits:
        """The budget as a limit of all calls together."""
        return Limits(turns=None, tokens=self.tokens, cost=self.cost)

    def __bool__(self) -> bool:
        return self.cost is not None or self.tokens is not None

    def exceeded(self, spent: Spending) -> str | None:
        """Why no more may be started, if so."""
        if self.cost is not None and (spent.cost or 0.0) >= self.cost - 1e-9:  # sums of cents are not exact
            return f"the budget of ${self.cost:g} is used up"
        if self.tokens is not None and spent.tokens >= self.tokens:
            return f"the budget of {self.tokens:,} tokens is used up"
        return None


def check_prices(model: Model, limits: str) -> None:
    """`BadBudget` if `limits` are in money, and what the model's replies cost is known not to be known."""
    if tells_cost(model) is False:
        raise BadBudget(f"{limits} in dollars needs prices, and {model.name!r} has none: {HOW_TO_PRICE}")


def read_budget(text: str) -> Budget:
    """A budget as people write it.

    >>> read_budget("$2.50").cost, read_budget("5usd").cost, read_budget("3M tokens").tokens
    (2.5, 5.0, 3000000)
    """
    found = _AMOUNT.fullmatch(text.strip())
    unit = (found["unit"] or ("$" if found["money"] else "")) if found else ""
    if found is None or not unit or (found["money"] and found["unit"]):
        raise BadBudget(f"a budget is money or tokens, such as $5 or 2M tokens; got {text!r}")
    amount = float(found["number"]) * _SCALES[(found["scale"] or "").lower()]
    return Budget(tokens=int(amount)) if unit == "tokens" else Budget(cost=amount)
