"""The numbers of a run in words and tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stemma.batch.progress import Progress
from stemma.cli.screen import visible

if TYPE_CHECKING:
    from rich.table import Table


def money(amount: float | None) -> str:
    """Dollars; what is not known is never called nothing.

    >>> money(None), money(0.0123), money(12.5)
    ('cost unknown', '$0.0123', '$12.50')
    """
    if amount is None:
        return "cost unknown"
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.4f}"


def seconds_told(seconds: float | None) -> str:
    """A time span for people.

    >>> seconds_told(5.2), seconds_told(65), seconds_told(7322), seconds_told(None)
    ('5 s', '1 min 05 s', '2 h 02 min', '?')
    """
    if seconds is None:
        return "?"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02} min"


def lines_of(progress: Progress) -> list[str]:
    """How far it is, in a few short pieces."""
    ended = progress.ended
    pieces = [
        f"{progress.done:,}/{progress.to_do:,} done",
        f"{progress.running:,} running",
        f"{ended['failed']:,} failed",
        f"{progress.rate:.1f}/s",
        f"{seconds_told(progress.left)} left",
        f"{progress.spent.tokens:,} tokens",
        money(progress.spent.cost),
        f"{progress.at_once} at once ({progress.limit_why})",
    ]
    if progress.errors:
        pieces.append(", ".join(f"{kind} ×{number}" for kind, number in progress.errors.most_common(3)))
    return pieces


def projected(progress: Progress) -> float | None:
    """What the whole run will have cost, if the rest is like what was done here."""
    if progress.spent.cost is None or not progress.done:
        return None
    here = progress.kept + progress.done
    return progress.spent.cost * (progress.kept + progress.to_do) / here


def table_of(numbers: dict[str, Any]) -> "Table":
    """The whole run at a glance."""
    from rich.table import Table

    table = Table(title=visible(title_of(numbers)), show_header=False, title_justify="left")
    for row in rows_of(numbers):
        table.add_row(*row)
    return table


def title_of(numbers: dict[str, Any]) -> str:
    """What stands above the numbers."""
    return f"run {numbers['run_name']}"


def rows_of(numbers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The whole run in a few numbers: what each is, and the number."""
    tasks = numbers["tasks"]
    statuses = ", ".join(f"{tasks[name]:,} {name}" for name in ("completed", "stopped", "failed", "running"))
    yield "tasks", f"{tasks['begun']:,} of {numbers['total_tasks']:,}: {statuses}"
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in numbers["left_out"].items())
    yield "exported", f"{numbers['exported']:,}" + (f" (left out: {left_out})" if left_out else "")
    yield "stopped by", _counts(numbers["stop_reasons"])
    if numbers["errors"]:
        yield "errors", _counts(numbers["errors"])
    for what in ("reward", "export"):
        for text, number in numbers[f"{what}_errors"].items():
            yield f"{what} error", visible(f"{text} ({number:,})")
    used = {name: use for name, use in numbers["tool_statistics"].items() if use["count"]}
    yield "tools", ", ".join(f"{n} {u['count']:,} ({u['success_rate']:g} % ok)" for n, u in used.items())
    yield "reasoning", f"{numbers['reasoning_statistics']['coverage_percent']:g} % of replies"
    yield "tokens", f"{numbers['tokens'].get('total_tokens', 0):,}"
    yield "cost", money(numbers["cost"])
    for name in ("call", "conversation"):
        if spread := numbers["latency"][name]:
            yield f"{name} time", "  ".join(f"{key} {value:g} s" for key, value in spread.items())
    if numbers["rewards"]:
        yield "reward", "  ".join(f"{key} {value:g}" for key, value in numbers["rewards"].items())


def _counts(counts: dict[str, int]) -> str:
    return visible(", ".join(f"{name} {number:,}" for name, number in counts.items()))
