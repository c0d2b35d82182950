"""What `stemma compress` shows at its end: a table, a histogram and the reasons; or all of it as JSON."""

from typing import TYPE_CHECKING, Any

from stemma.cli.screen import Piece, Screen

if TYPE_CHECKING:
    from stemma.cli.compress import Outcome
    from stemma.compress.report import Forecasts, Report

_BAR = 30


def show(outcome: "Outcome", *, as_json: bool) -> None:
    """The account of a run, or of a dry one."""
    screen = Screen()
    if as_json:
        screen.json(_told(outcome))
        return
    if outcome.forecasts is not None:
        _show_forecast(screen, outcome.forecasts, outcome.report)
    else:
        _show_report(screen, outcome.report)
    for path in outcome.outputs:
        screen.line(("  written    ", "dim"), path)
    for problem in outcome.problems[:10]:
        screen.line(("  not read   ", "yellow"), problem)


def _told(outcome: "Outcome") -> dict[str, Any]:
    told = outcome.forecasts.to_dict() if outcome.forecasts is not None else outcome.report.to_dict()
    return {**told, "outputs": outcome.outputs, "unreadable": outcome.problems}


def _show_forecast(screen: Screen, forecasts: "Forecasts", report: "Report") -> None:
    counted = f" by {report.tokenizer}"
    screen.line((f"{forecasts.rows:,} rows", "bold"), f", {forecasts.tokens:,} tokens{counted}")
    screen.line(f"  {forecasts.affected:,} are over {report.target:,} tokens and would be compressed")
    screen.line(f"  {forecasts.summaries:,} summaries of about {forecasts.prompt_tokens:,} tokens")
    screen.line(f"  into about {forecasts.completion_tokens:,} tokens", (_cost(forecasts.cost), "dim"))


def _show_report(screen: Screen, report: "Report") -> None:
    for name, before, after in (
        ("tokens", report.tokens_before, report.tokens_after),
        ("turns", report.turns_before, report.turns_after),
    ):
        share = after / before if before else 1.0
        screen.line((f"  {name:<9}", "bold"), f"{before:>15,} → {after:>15,}   {share:6.1%}")
    screen.line((f"  {'rows':<9}", "bold"), f"{report.rows:>15,}")
    for name, count in (
        ("compressed", report.compressed),
        ("under the target already", report.skipped),
        ("still over it", report.over),
        ("failed, kept as they were", report.failed),
    ):
        screen.line(f"    {count:>11,}   {name}")
    asked = f"{report.api_calls:,} calls of {report.summarizer}, {report.api_errors:,} failed"
    screen.line(("  summaries ", "bold"), asked, (_cost(report.cost), "dim"))
    screen.line(("  counted   ", "bold"), f"by {report.tokenizer}")
    _show_histogram(screen, report)
    for why, count in report.reasons.most_common():
        screen.line(("  why        ", "yellow"), f"{count:,} × {why}")


def _cost(cost: float | None) -> str:
    return ", at a price that is not known" if cost is None else f", ${cost:,.4f}" if cost else ""


def _show_histogram(screen: Screen, report: "Report") -> None:
    steps = report.histogram()
    most = max((max(step["before"], step["after"]) for step in steps), default=1)
    for step in steps:
        pieces: list[Piece] = [f"  below {step['below']:>11,} tokens  "]
        pieces += [(_bar(step["before"], most), "red"), ("→ ", "dim"), (_bar(step["after"], most), "green")]
        screen.line(*pieces)


def _bar(count: int, most: int) -> str:
    """A bar and its number, as wide as every other."""
    bar = "█" * -(-count * _BAR // most)
    return f"{bar} {count:,}".ljust(_BAR + 12)
