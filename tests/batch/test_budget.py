import pytest

from stemma.batch.budget import BadBudget, Budget, read_budget
from stemma.batch.progress import Spending


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("$5", Budget(cost=5.0)),
        ("2.50$", Budget(cost=2.5)),
        ("3 usd", Budget(cost=3.0)),
        ("500 tokens", Budget(tokens=500)),
        ("2M tokens", Budget(tokens=2_000_000)),
        ("1.5k tokens", Budget(tokens=1500)),
    ],
)
def test_a_budget_is_written_as_people_write_it(text, budget):
    assert read_budget(text) == budget


@pytest.mark.parametrize("text", ["5", "", "$", "five dollars", "-3 usd", "$5 tokens", "2M"])
def test_what_is_neither_money_nor_tokens_is_refused(text):
    with pytest.raises(BadBudget, match="money or tokens"):
        read_budget(text)


def test_a_budget_is_used_up_when_it_is_reached():
    assert Budget().exceeded(Spending(10**9, 1e9)) is None
    assert Budget(tokens=500).exceeded(Spending(499)) is None
    assert "500 tokens" in Budget(tokens=500).exceeded(Spending(500))
    assert "$0.3" in Budget(cost=0.3).exceeded(Spending(0, sum([0.1] * 3)))
    assert Budget(cost=0.3).exceeded(Spending(10**9, None)) is None, "what is not known is not spent"
