"""A run in numbers: a pure function of the records of its tasks, over the whole run and not one invocation.

Records are counted one at a time and need not stay in memory. Sums are exact (`math.fsum`) and lists sorted, so that
the order in which tasks ended changes nothing. `tests/batch/test_statistics.py` proves it.
"""

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stemma.batch.policies import Policies
from stemma.batch.record import Record
from stemma.formats.entries import UNKNOWN, ToolUse

PERCENTILES = (50, 90, 99)
ABOUT = ("run_name", "model", "total_tasks", "batch_size", "started_at")
STATUSES = ("completed", "stopped", "failed", "running")


class Tally:
    """The numbers of a run, record by record."""

    def __init__(self, known_tools: Sequence[str], policies: Policies) -> None:
        self._policies = policies
        self._statuses: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._stops: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._exported = self._replies = self._thoughts = self._thoughtless = self._unscored = 0
        self._tools = dict.fromkeys((*known_tools, UNKNOWN), ToolUse())
        self._costs, self._rewards = array("d"), array("d")
        self._calls, self._conversations, self._turns = array("d"), array("d"), array("d")
        self._last: float | None = None

    def add(self, record: Record) -> None:
        """Count one task."""
        self._statuses[record.status] += 1
        self._stops[record.stop or record.status] += 1
        self._tokens.update(record.usage)
        self._calls.extend(record.latencies)
        if record.cost is not None:
            self._costs.append(record.cost)
        if record.status == "failed" and record.failure:
            self._errors[record.failure.kind] += 1
        if record.finished is not None:
            self._last = max(self._last or 0.0, record.finished)
        self._add_tools(record)
        self._add_reward(record)
        if record.ended:
            self._add_ended(record)

    def _add_ended(self, record: Record) -> None:
        reason = self._policies.reason(record)
        if reason is None:
            self._exported += 1
        else:
            self._left_out[reason] += 1
        self._replies += record.api_calls
        self._thoughts += record.with_reasoning
        self._thoughtless += not record.with_reasoning
        self._turns.append(record.api_calls)
        self._conversations.append(record.seconds)

    def _add_tools(self, record: Record) -> None:
        for name, use in record.tools.items():
            place = name if name in self._tools else UNKNOWN
            was = self._tools[place]
            self._tools[place] = ToolUse(was.count + use.count, was.success + use.success, was.failure + use.failure)

    def _add_reward(self, record: Record) -> None:
        if record.reward is not None:
            self._rewards.append(record.reward)
        self._unscored += record.reward_failure is not None

    def numbers(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """All that `statistics.json` says; `about` is what the run is called and was asked to do."""
        return {
            **{name: about.get(name) for name in ABOUT},
            "completed_at": self._last,
            "tasks": {"begun": self._statuses.total(), **{s: self._statuses[s] for s in STATUSES}},
            "exported": self._exported,
            "left_out": _most_first(self._left_out),
            "stop_reasons": _most_first(self._stops),
            "errors": _most_first(self._errors),
            "tool_statistics": {name: _rates(use) for name, use in self._tools.items()},
            "reasoning_statistics": {
                "total_assistant_turns": self._replies,
                "turns_with_reasoning": self._thoughts,
                "turns_without_reasoning": self._replies - self._thoughts,
                "coverage_percent": _percent(self._thoughts, self._replies),
                "conversations_without_reasoning": self._thoughtless,
            },
            "turns": spread(self._turns),
            "tokens": dict(sorted(self._tokens.items())),
            "cost": round(math.fsum(self._costs), 9) if self._costs else None,
            "latency": {"call": spread(self._calls), "conversation": spread(self._conversations)},
            "rewards": self._reward_numbers(),
        }

    def _reward_numbers(self) -> dict[str, Any] | None:
        if not self._rewards and not self._unscored:
            return None
        return {"scored": len(self._rewards), "failed": self._unscored, **(spread(self._rewards) or {})}


def _most_first(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first; equals by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _rates(use: ToolUse) -> dict[str, float]:
    counts = {"count": use.count, "success": use.success, "failure": use.failure}
    return {
        **counts,
        "success_rate": _percent(use.success, use.count),
        "failure_rate": _percent(use.failure, use.count),
    }


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, percentiles and the greatest.

    >>> spread([4.0, 1.0, 2.0])
    {'mean': 2.3333, 'p50': 2.0, 'p90': 4.0, 'p99': 4.0, 'max': 4.0}
    """
    if not values:
        return None
    ordered = sorted(values)
    at = {f"p{p}": round(ordered[math.ceil(len(ordered) * p / 100) - 1], 4) for p in PERCENTILES}
    return {"mean": round(math.fsum(ordered) / len(ordered), 4), **at, "max": round(ordered[-1], 4)}
