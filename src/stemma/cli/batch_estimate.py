"""What a run may use, guessed before it starts: from its own finished tasks if it has any, else from its texts.

What a token costs is known only where the model's settings or its endpoint say so; unknown is told as unknown.
"""

from stemma.batch.batch import Batch
from stemma.batch.outputs import records
from stemma.batch.plan import Plan
from stemma.cli.batch_numbers import money
from stemma.store import open_store

_TEXTS = 200
"""How many prompts are looked at."""


def estimate(batch: Batch, plan: Plan) -> list[str]:
    """Lines for a reader."""
    done = _measured(batch)
    if done is not None:
        tokens, cost, number = done
        rest = plan.to_do / number
        known = money(cost * rest) if cost is not None else "unknown"
        return [f"as the {number:,} tasks done: {int(tokens * rest):,} tokens more, cost {known}"]
    low = _prompt_tokens(batch) * plan.to_do
    return [
        f"the prompts alone: about {low:,} tokens (four characters a token); replies and tools come on top",
        "cost: unknown until the first replies say what they cost",
    ]


def _measured(batch: Batch) -> tuple[int, float | None, int] | None:
    """Tokens, dollars and number of the tasks that have ended."""
    path = batch.folder / "stemma.db"
    if not path.exists():
        return None
    with open_store(path, create=False) as store:
        ended = [record for record in records(store, batch.order.name) if record.ended]
    if not ended:
        return None
    costs = [record.cost for record in ended if record.cost is not None]
    tokens = sum(record.usage.get("total_tokens", 0) for record in ended)
    return tokens, sum(costs) if costs else None, len(ended)


def _prompt_tokens(batch: Batch) -> int:
    """Tokens of an average first question."""
    sizes = []
    for task, _ in zip(batch.order.tasks(), range(_TEXTS), strict=False):
        sizes.append(sum(len(str(m.get("content") or "")) for m in batch.first_request(task)) // 4)
    return sum(sizes) // len(sizes) if sizes else 0
