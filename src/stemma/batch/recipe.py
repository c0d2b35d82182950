"""A run's recipe: all that affects sampling. Another recipe is another run, unless one says otherwise.

How many run at once, how often a failure is tried again and where files go are no part of it.
`tests/batch/test_recipe.py` proves it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stemma.agent.agent import Agent
from stemma.batch.distributions import Distribution
from stemma.core.canonical import canonical
from stemma.core.ids import digest
from stemma.errors import StemmaError
from stemma.redact import without_secrets


class ChangedRecipe(StemmaError):
    """A run is to go on under another configuration than it began with."""

    def __init__(self, message: str, changes: Mapping[str, tuple[Any, Any]] | None = None) -> None:
        super().__init__(message)
        self.changes = dict(changes or {})


def recipe_of(agent: Agent, distribution: Distribution | None, seed: int | None) -> dict[str, Any]:
    """All that affects sampling and is the same for every task."""
    setup = agent.setup
    found = {
        "model": setup.model.name,
        "params": without_secrets(setup.params),
        "system": agent.system,
        "tools": [tool.schema() for tool in setup.tools.values()],
        "distribution": msgspec.to_builtins(distribution),
        "seed": seed,
        "limits": msgspec.to_builtins(setup.limits),
        "compaction": msgspec.to_builtins(setup.compaction),
        **setup.guidance.notes(),
    }
    return {key: value for key, value in found.items() if value not in (None, "", [], {})}


def recipe_id(recipe: Mapping[str, Any]) -> str:
    """The short name of a recipe."""
    return digest("recipe", canonical(dict(recipe))).hex()[:16]


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs between two recipes, key by key.

    >>> changes({"model": "a", "seed": 1}, {"model": "b", "seed": 1})
    {'model': ('a', 'b')}
    """
    keys = [*before, *(key for key in now if key not in before)]
    return {key: (before.get(key), now.get(key)) for key in keys if before.get(key) != now.get(key)}


def told(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """The changes for a reader, one a line."""
    return "\n".join(f"  {key}: {was!r:.80} → {now!r:.80}" for key, (was, now) in changed.items())
