"""What the user sees of a batch: a live table at a terminal, plain lines elsewhere, JSON lines for programs.

    full    rates, money, what is in flight and why, errors, the slowest conversations; redrawn four times a second
    plain   a line now and then, for logs
    json    an object a line: `plan`, `result` for each task, `end`
    none    nothing but the last numbers on standard error

`tests/cli/test_batch.py` looks at all of them.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import typer

from stemma.batch.batch import Batch
from stemma.batch.distributions import BUILT_IN, read_distributions
from stemma.batch.order import Result
from stemma.batch.outputs import failures_of
from stemma.cli.batch_asked import Asked
from stemma.cli.batch_numbers import lines_of, rows_of, table_of, title_of
from stemma.cli.screen import Screen, visible
from stemma.cli.settings import Settings

KINDS = ("auto", "full", "plain", "json", "none")
_BROKEN = {"task": "failed", "reward": "not scored", "export": "not exported"}
_EVERY = 5.0
"""Seconds between plain lines."""


class Display(Protocol):
    """One way to show a run."""

    @contextmanager
    def showing(self, batch: Batch) -> Iterator[None]:
        """Show it while the block runs."""
        ...

    def result(self, result: Result) -> None:
        """A task has ended."""
        ...

    def end(self, batch: Batch) -> None:
        """The run is over, for now."""
        ...


def choose_display(kind: str) -> Display:
    """The display of that name; `auto` is full at a terminal."""
    if kind not in KINDS:
        raise typer.BadParameter(f"--display {kind!r}: choose one of {', '.join(KINDS)}")
    if kind == "auto":
        kind = "full" if sys.stderr.isatty() else "plain"
    if kind == "full":
        from stemma.cli.batch_live import LiveDisplay

        return LiveDisplay()
    return PlainDisplay() if kind == "plain" else JsonDisplay() if kind == "json" else QuietDisplay()


class PlainDisplay:
    """A line now and then."""

    @contextmanager
    def showing(self, batch: Batch) -> Iterator[None]:
        over = threading.Event()
        teller = threading.Thread(target=self._tell, args=(batch, over), daemon=True)
        say(f"{batch.folder}: {batch.plan()}")
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()

    def _tell(self, batch: Batch, over: threading.Event) -> None:
        while not over.wait(_EVERY):
            say(" · ".join(lines_of(batch.progress)))

    def result(self, result: Result) -> None:
        for what, failure in failures_of(result.record):
            say(f"{_BROKEN[what]}: {result.record.name}: {failure.kind}: {failure.text[:200]}")

    def end(self, batch: Batch) -> None:
        show_end(batch)


class JsonDisplay:
    """JSON lines on standard output."""

    @contextmanager
    def showing(self, batch: Batch) -> Iterator[None]:
        plan = batch.plan()
        self._write({"event": "plan", "run": batch.order.name, "tasks": plan.tasks, "kept": plan.kept})
        yield

    def result(self, result: Result) -> None:
        record = result.record
        found = {"event": "result", "name": record.name, "prompt_index": record.prompt_index, "sample": record.sample}
        found |= {"status": record.status, "stop": record.stop, "answer": result.answer, "reward": record.reward}
        found |= {f"{what}_error": failure.text for what, failure in failures_of(record) if what != "task"}
        self._write(found | {"error": record.failure.text if record.failure else None})

    def end(self, batch: Batch) -> None:
        self._write({"event": "end", "statistics": batch.statistics, "stopped": batch.progress.stopping})

    def _write(self, value: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


class QuietDisplay:
    """Nothing until the end."""

    @contextmanager
    def showing(self, batch: Batch) -> Iterator[None]:
        yield

    def result(self, result: Result) -> None:
        """Nothing to say."""

    def end(self, batch: Batch) -> None:
        show_end(batch)


def say(text: str) -> None:
    """A line for people, which programs that read the output do not get."""
    typer.echo(visible(text), err=True)


def show_end(batch: Batch) -> None:
    """The numbers of the run, and what to type next."""
    _show_numbers(batch.statistics)
    if batch.progress.stopping:
        say(f"stopped: {batch.progress.stopping}")
    commands = next_commands(batch)
    width = max(map(len, commands))
    for command, use in commands.items():
        say(f"  {command:{width}}   {use}")


def _show_numbers(numbers: dict[str, Any]) -> None:
    """A table at a terminal, elsewhere lines."""
    if sys.stderr.isatty():
        from rich.console import Console

        Console(stderr=True, highlight=False).print(table_of(numbers))
        return
    say(title_of(numbers))
    for what, number in rows_of(numbers):
        say(f"  {what:17}   {number}")


def out_of_budget(batch: Batch) -> bool:
    """Whether the run has stopped because no more may be spent."""
    return bool(batch.order.budget) and (batch.progress.stopping or "").startswith("the budget")


def next_commands(batch: Batch) -> dict[str, str]:
    """What a user would want to do now, and what for."""
    run, store = batch.order.name, batch.folder / "stemma.db"
    tasks = batch.statistics["tasks"]
    unfinished = tasks["failed"] or batch.statistics["total_tasks"] > tasks["completed"] + tasks["stopped"]
    again = "the same command, a larger --budget" if out_of_budget(batch) else "the same command again"
    first = {again: "goes on with what is left"} if unfinished else {}
    return first | {
        f"stemma stats {batch.folder}": "numbers; --html for a page with plots",
        f"stemma log --store {store}": "what was said",
        f"stemma export {store} --for trl -o {run}-trl": "rows for a trainer",
    }


def show_distributions(file: Path | None) -> None:
    """Every distribution, with its toolsets."""
    known = {**BUILT_IN, **(read_distributions(file) if file else {})}
    screen = Screen()
    for one in known.values():
        toolsets = ", ".join(f"{name} {percent:g} %" for name, percent in one.percent.items())
        screen.line((f"{one.name:16}", "bold"), toolsets, f"  {one.about}" if one.about else "")


def show_plan(batch: Batch, asked: Asked, settings: Settings) -> None:
    """What a run would do: its configuration, its first question, and what it may cost."""
    from stemma.cli.batch_asked import as_yaml
    from stemma.cli.batch_estimate import estimate

    screen, plan = Screen(), batch.plan()
    screen.line(("configuration", "bold"))
    screen.block(as_yaml(asked, settings).decode(), "  ")
    if changed := batch.changed():
        from stemma.batch.recipe import told

        screen.line(("changed since the run began", "bold red"))
        screen.block(told(changed))
    screen.line(("first question", "bold"))
    first = next(batch.order.tasks(), None)
    if first is not None:
        for message in batch.first_request(first):
            screen.block(f"{message['role']}: {message.get('content')}", "  ")
    screen.line(("plan", "bold"))
    screen.line(f"  {plan}")
    for line in estimate(batch, plan):
        screen.line(f"  {line}")
