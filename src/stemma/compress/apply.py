"""One conversation to the target, or as it was with the reason.

What is promised of every row, and `tests/compress/test_guarantees.py` tries ten thousand ways:

- a call and its results stay together, and protected turns stay what they were (but for the notice, if wanted);
- the result is within the target, or `why` says what stands in the way;
- it is never longer than before;
- a summary that fails leaves the row as it was, and `failed`.
"""

import asyncio

import msgspec

from stemma.compress.counting import Counter
from stemma.compress.errors import NoSummary
from stemma.compress.metrics import RowMetrics
from stemma.compress.passes import Attempt, Counted, Goal, Passes
from stemma.compress.plan import Cut, summary_room
from stemma.compress.report import Forecast
from stemma.compress.settings import Settings
from stemma.compress.summary import Summarizer, Summary
from stemma.compress.turns import Item, cut_out


class Compressed(msgspec.Struct, frozen=True):
    """A conversation and what was done to it."""

    items: list[Item]
    metrics: RowMetrics
    cuts: tuple[Cut, ...] = ()
    summaries: tuple[str, ...] = ()


class Compressor:
    """Compresses conversations, each within its time, and so many at once as summaries may be asked for at once."""

    def __init__(self, settings: Settings, counter: Counter) -> None:
        processing, output = settings.processing, settings.output
        self._counter = counter
        self._goal = Goal(
            target=settings.compression.target_max_tokens,
            summary_tokens=settings.compression.summary_target_tokens,
            protection=settings.protected_turns,
            notice=output.summary_notice_text if output.add_summary_notice else "",
        )
        self._skip, self._seconds = processing.skip_under_target, processing.per_trajectory_timeout
        self._asking = asyncio.Semaphore(processing.max_concurrent_requests)

    def is_due(self, row: Counted) -> bool:
        """Whether anything is to be done."""
        return row.total > self._goal.target or not self._skip

    async def compress(self, row: Counted, summarizer: Summarizer) -> Compressed:
        """The row, compressed or not."""
        if not self.is_due(row):
            return unchanged(row, RowMetrics(skipped_under_target=True))
        passes = Passes(row, self._goal, self._counter, summarizer)
        over = row.total > self._goal.target
        try:
            async with self._asking, asyncio.timeout(self._seconds):
                best = await passes.best()
        except NoSummary as problem:
            failed = RowMetrics(failed=True, why=str(problem), still_over_limit=over)
            return unchanged(row, _paid(failed, passes.spent, lost=problem.calls))
        except TimeoutError:
            failed = RowMetrics(failed=True, why=f"it took longer than {self._seconds:g} s", still_over_limit=over)
            return unchanged(row, _paid(failed, passes.spent, lost=1))
        if best is None or best.tokens >= row.total:
            why = self._why(passes, best) if over else ""
            return unchanged(row, _paid(RowMetrics(still_over_limit=over, why=why), passes.spent))
        return self._result(row, best, passes)

    def _result(self, row: Counted, best: Attempt, passes: Passes) -> Compressed:
        items = cut_out(row.items, best.cuts, best.summaries, self._goal.notice)
        gone = {i for cut in best.cuts for i in range(cut.start, cut.stop)}
        start = best.cuts[0].start
        over = best.tokens > self._goal.target
        metrics = RowMetrics(
            original_tokens=row.total,
            compressed_tokens=best.tokens,
            original_turns=len(row.items),
            compressed_turns=len(items),
            start_idx=start,
            end_idx=best.cuts[-1].stop,
            turns_in_region=len(gone),
            was_compressed=True,
            still_over_limit=over,
            why=self._why(passes, best) if over else "",
            off_policy_turns=sum(t.role == "gpt" for i, t in enumerate(row.turns) if i > start and i not in gone),
        )
        return Compressed(items, _paid(metrics, passes.spent), best.cuts, best.summaries)

    def _why(self, passes: Passes, best: Attempt | None) -> str:
        """What stands between a row and the target."""
        target = self._goal.target
        if best is None:
            return "every turn is protected, or belongs to one that is"
        if passes.kept >= target:
            return f"what is protected has {passes.kept} tokens; the target is {target}"
        return f"the summaries are too long: with them it has {best.tokens} tokens; the target is {target}"

    async def forecast(self, row: Counted) -> Forecast | None:
        """What compressing the row would take in its first pass; None if nothing can be or need be done."""
        if not self.is_due(row):
            return None
        passes = Passes(row, self._goal, self._counter, _Nobody())
        cuts = passes.plan(await passes.first_excess(), self._goal.summary_tokens)
        sizes = [row.size(cut) for cut in cuts]
        rooms = [summary_room(size, self._goal.summary_tokens) for size in sizes]
        if not cuts:
            return None
        return Forecast(summaries=len(cuts), prompt_tokens=sum(sizes), completion_tokens=sum(rooms))


class _Nobody:
    """A forecast asks for no summary."""

    name = "nobody"

    async def summarise(self, turns: object, tokens: int) -> Summary:
        raise NoSummary("a forecast makes no summaries")


def unchanged(row: Counted, metrics: RowMetrics) -> Compressed:
    """The row as it was."""
    turns, tokens = len(row.items), row.total
    same = {"original_turns": turns, "compressed_turns": turns, "original_tokens": tokens, "compressed_tokens": tokens}
    return Compressed(row.items, msgspec.structs.replace(metrics, **same))


def _paid(metrics: RowMetrics, spent: list[Summary], lost: int = 0) -> RowMetrics:
    """The metrics with what the summaries took, and `lost` calls that led to none."""
    costs = [summary.cost for summary in spent]
    return msgspec.structs.replace(
        metrics,
        api_calls=sum(summary.calls for summary in spent) + lost,
        api_errors=sum(summary.errors for summary in spent) + lost,
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
    )
