"""The account of a whole run, added up row by row: it needs the same memory for ten rows and for ten million.

`to_dict` is the JSON beside the output; its first sections have the names people know. A number of rows is told for
every way a row can end, and the reasons of those that are over the target or failed, each with how often it was met.
"""

import re
from collections import Counter
from typing import Any

import msgspec

from stemma.compress.metrics import RowMetrics

_NUMBER = re.compile(r"\d+")
_REASONS = 20
"""How many different reasons are told."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What compressing a row would take."""

    summaries: int
    prompt_tokens: int
    completion_tokens: int


class Report:
    """Sums over rows."""

    def __init__(self, *, tokenizer: str, summarizer: str, target: int) -> None:
        self.tokenizer, self.summarizer, self.target = tokenizer, summarizer, target
        self.rows = self.compressed = self.skipped = self.over = self.failed = self.unreadable = 0
        self.tokens_before = self.tokens_after = self.turns_before = self.turns_after = 0
        self.ratios = 0.0
        self.off_policy_turns = self.api_calls = self.api_errors = 0
        self.cost: float | None = 0.0
        self.reasons: Counter[str] = Counter()
        self.before: Counter[int] = Counter()
        self.after: Counter[int] = Counter()
        """Rows by the power of two that their tokens reach."""

    def add(self, row: RowMetrics) -> None:
        """Count one row."""
        self.rows += 1
        self.compressed += row.was_compressed
        self.skipped += row.skipped_under_target
        self.over += row.still_over_limit
        self.failed += row.failed
        self.tokens_before += row.original_tokens
        self.tokens_after += row.compressed_tokens
        self.turns_before += row.original_turns
        self.turns_after += row.compressed_turns
        self.ratios += row.ratio if row.was_compressed else 0.0
        self.off_policy_turns += row.off_policy_turns
        self.api_calls += row.api_calls
        self.api_errors += row.api_errors
        self.cost = None if self.cost is None or row.cost is None else self.cost + row.cost
        self.before[row.original_tokens.bit_length()] += 1
        self.after[row.compressed_tokens.bit_length()] += 1
        if row.why:
            self._count_reason(row.why)

    def _count_reason(self, why: str) -> None:
        kind = _NUMBER.sub("n", why)[:200]  # the same reason with other numbers is the same reason
        self.reasons[kind if kind in self.reasons or len(self.reasons) < _REASONS else "other"] += 1

    def to_dict(self) -> dict[str, Any]:
        """The JSON beside the output."""
        compressed = max(self.compressed, 1)
        saved, removed = self.tokens_before - self.tokens_after, self.turns_before - self.turns_after
        return {
            "summary": {
                "total_trajectories": self.rows,
                "trajectories_compressed": self.compressed,
                "trajectories_skipped_under_target": self.skipped,
                "trajectories_still_over_limit": self.over,
                "trajectories_failed": self.failed,
                "lines_unreadable": self.unreadable,
                "compression_rate": round(self.compressed / max(self.rows, 1), 4),
            },
            "tokens": {
                "total_before": self.tokens_before,
                "total_after": self.tokens_after,
                "total_saved": saved,
                "overall_compression_ratio": round(self.tokens_after / max(self.tokens_before, 1), 4),
            },
            "turns": {
                "total_before": self.turns_before,
                "total_after": self.turns_after,
                "total_removed": removed,
                "off_policy": self.off_policy_turns,
            },
            "averages": {
                "avg_compression_ratio": round(self.ratios / compressed, 4) if self.compressed else 1.0,
                "avg_tokens_saved_per_compressed": round(saved / compressed, 1),
                "avg_turns_removed_per_compressed": round(removed / compressed, 2),
            },
            "summarization": {
                "summarizer": self.summarizer,
                "total_api_calls": self.api_calls,
                "total_errors": self.api_errors,
                "success_rate": round(1 - self.api_errors / max(self.api_calls, 1), 4),
                "cost_usd": None if self.cost is None else round(self.cost, 6),
            },
            "tokenizer": self.tokenizer,
            "target_max_tokens": self.target,
            "reasons": dict(self.reasons.most_common()),
            "histogram": self.histogram(),
        }

    def histogram(self) -> list[dict[str, int]]:
        """Rows before and after, by their tokens: each step holds those below `below` and not below the last."""
        steps = sorted({*self.before, *self.after})
        return [{"below": 1 << step, "before": self.before[step], "after": self.after[step]} for step in steps]


class Forecasts:
    """Sums over what rows would take: the account of a dry run."""

    def __init__(self) -> None:
        self.rows = self.tokens = self.affected = self.summaries = self.prompt_tokens = self.completion_tokens = 0
        self.cost: float | None = None
        """US dollars, if somebody knows the prices."""

    def add(self, tokens: int, forecast: Forecast | None) -> None:
        """Count one row; without a forecast nothing would be done to it."""
        self.rows += 1
        self.tokens += tokens
        if forecast is not None:
            self.affected += 1
            self.summaries += forecast.summaries
            self.prompt_tokens += forecast.prompt_tokens
            self.completion_tokens += forecast.completion_tokens

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "rows": self.rows,
            "tokens": self.tokens,
            "rows_affected": self.affected,
            "summaries": self.summaries,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": self.cost,
        }
