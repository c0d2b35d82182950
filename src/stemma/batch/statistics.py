"""A run in numbers: a pure function of the records of its tasks, over the whole run and not one invocation.

Records are counted one at a time and need not stay in memory. Sums are exact (`math.fsum`) and lists sorted, so that
the order in which tasks ended changes nothing; a sum beyond what a float holds is the largest float.
`tests/batch/test_statistics.py` proves it.
"""

import math
import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stemma.batch.policies import Policies
from stemma.batch.record import Failure, Record
from stemma.formats.entries import UNKNOWN, ToolUse

PERCENTILES = (50, 90, 99)
ABOUT = ("run_name", "model", "total_tasks", "batch_size", "started_at")
FEW, LONGEST = 20, 300
"""How many messages of errors are listed, and how many characters of each."""
STATUSES = ("completed", "stopped", "failed", "running")


class Tally:
    """The numbers of a run, record by record."""

    def __init__(self, known_tools: Sequence[str], policies: Policies) -> None:
        self._policies = policies
        self._statuses: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._stops: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._reward_errors: Counter[str] = Counter()
        self._export_errors: Counter[str] = Counter()
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
        if record.export_failure is not None:
            self._export_errors[_told(record.export_failure)] += 1
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
        if record.reward_failure is not None:
            self._unscored += 1
            self._reward_errors[_told(record.reward_failure)] += 1

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
            "reward_errors": _first_few(self._reward_errors),
            "export_errors": _first_few(self._export_errors),
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
            "cost": _rounded(total(self._costs), 9) if self._costs else None,
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


def _first_few(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent messages; the others, of which each may be another, are counted together."""
    found = _most_first(counts)
    few = dict(list(found.items())[:FEW])
    others = sum(counts.values()) - sum(few.values())
    return few | ({"others": others} if others else {})


def _told(failure: Failure) -> str:
    return f"{failure.kind}: {failure.text}"[:LONGEST]


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
    ordered = sorted(filter(math.isfinite, values))
    if not ordered:
        return None
    at = {f"p{p}": _rounded(ordered[math.ceil(len(ordered) * p / 100) - 1], 4) for p in PERCENTILES}
    return {"mean": _rounded(_mean(ordered), 4), **at, "max": _rounded(ordered[-1], 4)}


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return total([value / len(values) for value in values])


def total(values: Sequence[float]) -> float:
    """The exact sum; the largest float, or the least, where no float can hold it.

    >>> total([1e308, 1e308]) == sys.float_info.max
    True
    """
    try:
        return math.fsum(values)
    except OverflowError:
        return math.copysign(sys.float_info.max, math.fsum(math.ldexp(value, -64) for value in values))


def _rounded(value: float, digits: int) -> float:
    return value if abs(value) > 1e15 else round(value, digits)  # beyond that a float has no decimals
