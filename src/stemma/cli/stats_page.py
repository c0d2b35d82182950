"""A run as one page: numbers, bars and histograms, drawn as SVG. No script, no font, no address of anything outside.

Text that models and tools wrote is escaped. `tests/cli/test_stats.py` opens it in a real parser.
"""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from stemma.batch.record import Record
from stemma.cli.batch_numbers import money
from stemma.cli.screen import visible

_BINS = 24
_WIDTH, _HEIGHT = 520, 140
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1c2430; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } .plots { display: flex; flex-wrap: wrap; gap: 1.5rem; }
figure { margin: 0; } figcaption { font-weight: 600; } rect { fill: #3b6ea8; } rect.bad { fill: #b4423c; }
text { font: 11px system-ui, sans-serif; fill: #5a6675; } .dim { color: #8a94a1; }
@media (prefers-color-scheme: dark) { body { background: #14181e; color: #dde3ea; } text { fill: #98a4b3; } }
"""


def page(numbers: dict[str, Any], records: Iterable[Record]) -> str:
    """The whole page."""
    turns, seconds, tokens, rewards = [], [], [], []
    for record in records:
        if record.ended:
            turns.append(float(record.api_calls))
            seconds.append(record.seconds)
            tokens.append(float(record.usage.get("total_tokens", 0)))
        if record.reward is not None:
            rewards.append(record.reward)
    plots = [
        histogram("model calls of a conversation", turns),
        histogram("seconds of a conversation", seconds),
        histogram("tokens of a conversation", tokens),
        histogram("reward", rewards),
    ]
    title = _text(f"run {numbers['run_name']}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        f"{_summary(numbers)}\n<div class=plots>{''.join(plots)}</div>\n"
        f"{_tools(numbers['tool_statistics'])}\n{_counts('stop reasons', numbers['stop_reasons'])}"
        f"{_counts('errors', numbers['errors'])}{_counts('reward errors', numbers['reward_errors'])}"
        f"{_counts('export errors', numbers['export_errors'])}{_counts('left out of the files', numbers['left_out'])}"
        "</body></html>\n"
    )


def _summary(numbers: dict[str, Any]) -> str:
    tasks = numbers["tasks"]
    rows = {
        "model": numbers["model"],
        "tasks": f"{tasks['begun']:,} of {numbers['total_tasks']:,}",
        **{name: f"{tasks[name]:,}" for name in ("completed", "stopped", "failed", "running")},
        "exported": f"{numbers['exported']:,}",
        "reasoning": f"{numbers['reasoning_statistics']['coverage_percent']:g} % of replies",
        "tokens": f"{numbers['tokens'].get('total_tokens', 0):,}",
        "cost": money(numbers["cost"]),
    }
    return "<table>" + "".join(f"<tr><th>{_text(k)}</th><td>{_text(v)}</td></tr>" for k, v in rows.items()) + "</table>"


def _tools(used: dict[str, dict[str, float]]) -> str:
    head = "<tr><th>tool</th><th>calls</th><th>ok</th><th>failed</th><th></th></tr>"
    most = max((use["count"] for use in used.values()), default=0) or 1
    rows = [
        f"<tr{'' if use['count'] else ' class=dim'}><td>{_text(name)}</td>"
        + "".join(f"<td class=n>{use[key]:,}</td>" for key in ("count", "success", "failure"))
        + f"<td>{_bar(use['success'] / most, use['failure'] / most)}</td></tr>"
        for name, use in used.items()
    ]
    return f"<h2>tools</h2><table>{head}{''.join(rows)}</table>"


def _bar(good: float, bad: float) -> str:
    width = 200
    return (
        f"<svg width={width} height=10><rect width={good * width:.1f} height=10 />"
        f"<rect class=bad x={good * width:.1f} width={bad * width:.1f} height=10 /></svg>"
    )


def _counts(title: str, counts: dict[str, int]) -> str:
    if not counts:
        return ""
    rows = "".join(f"<tr><td>{_text(name)}</td><td class=n>{number:,}</td></tr>" for name, number in counts.items())
    return f"<h2>{_text(title)}</h2><table>{rows}</table>"


def histogram(title: str, values: Sequence[float]) -> str:
    """How values are spread, as bars; nothing if there are none."""
    if not values:
        return ""
    low, heights = bins(values)
    high, most = max(values), max(heights)
    step = _WIDTH / len(heights)
    bars = "".join(
        f"<rect x={i * step:.1f} y={_HEIGHT - height / most * _HEIGHT:.1f} width={step - 1:.1f} "
        f"height={height / most * _HEIGHT:.1f}><title>{height:,}</title></rect>"
        for i, height in enumerate(heights)
    )
    ends = f"<text x=0 y={_HEIGHT + 14}>{low:g}</text><text x={_WIDTH} y={_HEIGHT + 14} text-anchor=end>{high:g}</text>"
    svg = f'<svg width={_WIDTH} height={_HEIGHT + 18} role=img aria-label="{_text(title)}">{bars}{ends}</svg>'
    return f"<figure><figcaption>{_text(title)}</figcaption>{svg}</figure>"


def bins(values: Sequence[float]) -> tuple[float, list[int]]:
    """The least value, and how many values fall into each of some equal steps.

    >>> bins([1, 1, 2, 3])
    (1, [2, 1, 1])
    """
    low, high = min(values), max(values)
    number = min(_BINS, len(set(values)))
    heights = [0] * number
    width = high / 2 - low / 2  # the difference of two large numbers may be more than a float holds
    for value in values:
        heights[min(number - 1, math.floor((value / 2 - low / 2) / width * number)) if width > 0 else 0] += 1
    return low, heights


def _text(value: object) -> str:
    return escape(visible(str(value)))
