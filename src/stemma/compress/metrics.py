"""What became of one row. `to_dict` is its `compression_metrics`, alike in shape in every row, as Arrow wants it."""

from typing import Any

import msgspec


class RowMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The account of one trajectory."""

    original_tokens: int = 0
    compressed_tokens: int = 0
    original_turns: int = 0
    compressed_turns: int = 0
    start_idx: int = -1
    """Where the first summary begins to replace turns; -1 if none does."""
    end_idx: int = -1
    turns_in_region: int = 0
    was_compressed: bool = False
    still_over_limit: bool = False
    skipped_under_target: bool = False
    failed: bool = False
    """A summary did not come; the row is as it was."""
    why: str = ""
    """Why it failed, or cannot be brought under the target."""
    off_policy_turns: int = 0
    """Turns of the model that were sampled under the full context and now stand behind a summary."""
    api_calls: int = 0
    api_errors: int = 0
    cost: float | None = 0.0
    """US dollars; None: not known."""

    @property
    def ratio(self) -> float:
        """Tokens after for one before."""
        return self.compressed_tokens / self.original_tokens if self.original_tokens else 1.0

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the row."""
        return {
            "original_tokens": self.original_tokens,
            "compressed_tokens": self.compressed_tokens,
            "tokens_saved": self.original_tokens - self.compressed_tokens,
            "compression_ratio": round(self.ratio, 4),
            "original_turns": self.original_turns,
            "compressed_turns": self.compressed_turns,
            "turns_removed": self.original_turns - self.compressed_turns,
            "compression_region": {
                "start_idx": self.start_idx,
                "end_idx": self.end_idx,
                "turns_count": self.turns_in_region,
            },
            "was_compressed": self.was_compressed,
            "still_over_limit": self.still_over_limit,
            "skipped_under_target": self.skipped_under_target,
            "summarization_api_calls": self.api_calls,
            "summarization_errors": self.api_errors,
            "failed": self.failed,
            "why": self.why,
            "off_policy_turns": self.off_policy_turns,
        }
