"""Advantages: how much better a rollout did than the others of its group.

    (reward - mean) / (deviation + 0.0001)      over the rollouts of the group, as GRPO has it

Rollouts are counted, not rows: one that was split into many rows has one vote. A rollout without a reward, or alone in
its group, has nothing to be compared with. `tests/core/test_token_rows.py` proves it.

    >>> advantages({"a": 1.0, "b": 0.0, "c": None})
    {'a': 0.7070067953266834, 'b': -0.7070067953266834, 'c': None}
"""

from collections.abc import Iterable, Mapping
from math import fsum, sqrt

_EPSILON = 1e-4
_LARGE = 1e100


def advantages(rewards: Mapping[str, float | None]) -> dict[str, float | None]:
    """The advantage of each rollout of one group; None without a reward, 0 for one alone."""
    scale = _scale(reward for reward in rewards.values() if reward is not None)
    scaled = {name: None if reward is None else reward / scale for name, reward in rewards.items()}
    known = [reward for reward in scaled.values() if reward is not None]
    mean = fsum(known) / len(known) if known else 0.0
    spread = sqrt(fsum((reward - mean) ** 2 for reward in known) / (len(known) - 1)) if len(known) > 1 else 0.0
    return {name: None if one is None else (one - mean) / (spread + _EPSILON / scale) for name, one in scaled.items()}


def _scale(rewards: Iterable[float]) -> float:
    """What to divide by so that no sum of squares is too large for a float; 1 for all usual rewards."""
    largest = max(map(abs, rewards), default=0.0)
    return largest if largest > _LARGE else 1.0
