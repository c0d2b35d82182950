"""The live display of a batch, at a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stemma.batch.batch import Batch
from stemma.batch.order import Result
from stemma.batch.progress import Progress
from stemma.cli.batch_numbers import money, projected, seconds_told
from stemma.cli.batch_showing import say, show_end
from stemma.cli.screen import cut, visible

_SLOWEST = 5


class LiveDisplay:
    """A table that is redrawn four times a second."""

    @contextmanager
    def showing(self, batch: Batch) -> Iterator[None]:
        say(f"{batch.folder}: {batch.plan()}")
        console = Console(stderr=True, highlight=False)
        with Live(console=console, get_renderable=lambda: drawn(batch.progress, console.width), refresh_per_second=4):
            yield

    def result(self, result: Result) -> None:
        """It shows in the table."""

    def end(self, batch: Batch) -> None:
        show_end(batch)


def drawn(progress: Progress, width: int) -> Group:
    """The run as it is now."""
    bar = Table.grid(padding=(0, 1))
    share = progress.done / max(progress.to_do, 1)
    bar.add_row(ProgressBar(completed=100 * share, width=min(width - 8, 60)), f"{share:.0%}")
    parts: list[RenderableType] = [bar, _numbers(progress), *_errors(progress), _running(progress, width)]
    if progress.stopping:
        parts.append(Text(visible(f"stopping: {progress.stopping}"), style="yellow"))
    return Group(*parts)


def _numbers(progress: Progress) -> Table:
    table = Table.grid(padding=(0, 3))
    ended = progress.ended
    table.add_row(
        f"[bold]{progress.done:,}[/]/{progress.to_do:,} done" + (f" ({progress.kept:,} kept)" if progress.kept else ""),
        f"{ended['completed']:,} completed",
        f"{ended['stopped']:,} stopped",
        f"[red]{ended['failed']:,} failed[/]" if ended["failed"] else "0 failed",
    )
    table.add_row(
        f"{progress.rate:.1f}/s, {seconds_told(progress.left)} left",
        f"{progress.spent.tokens:,} tokens",
        f"{money(progress.spent.cost)}" + (f" of ~{money(whole)}" if (whole := projected(progress)) else ""),
        f"{progress.running:,} of {progress.at_once} at once: {progress.limit_why}",
    )
    return table


def _errors(progress: Progress) -> list[Text]:
    told = ", ".join(f"{kind} ×{number}" for kind, number in progress.errors.most_common(4))
    return [Text(visible(told), style="red")] if told else []


def _running(progress: Progress, width: int) -> Table:
    """The conversations that have been running longest, and what they are doing."""
    table = Table.grid(padding=(0, 2))
    now = progress.clock()
    for _, doing in progress.slowest(_SLOWEST):
        text = visible(doing.text)
        what = visible(f"{doing.what} ({seconds_told(now - doing.since)})")
        table.add_row(seconds_told(now - doing.begun), Text(what), Text(cut(text, max(width - 50, 20)), style="dim"))
    return table
