"""`stemma stats`: a run in tables, or as one page with plots."""

from pathlib import Path
from typing import Annotated, Any

import typer

from stemma.cli.options import JsonOption


def stats(
    run: Annotated[str, typer.Argument(help="A run: its folder, or its name below `runs`.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page with plots.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a run's numbers: tasks, tools, reasoning, tokens, cost, times, stop reasons, errors, rewards."""
    from stemma.batch.outputs import records
    from stemma.cli.batch_again import open_run
    from stemma.cli.screen import Screen

    with open_run(run) as (store, name, files):
        numbers = files.numbers()
        if html is not None:
            from stemma.cli.stats_page import page
            from stemma.formats.export import write_whole

            write_whole(html, page(numbers, records(store, name)).encode("utf-8", "backslashreplace"))
            Screen().line(f"{html}: open it in a browser; it needs nothing else")
            return
    if json:
        Screen().json(numbers)
    else:
        _tables(numbers)


def _tables(numbers: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from stemma.cli.batch_numbers import table_of
    from stemma.cli.screen import visible

    console = Console(highlight=False)
    console.print(table_of(numbers))
    tools = Table("tool", "calls", "ok", "failed", "ok %", title="tools", title_justify="left")
    for name, use in numbers["tool_statistics"].items():
        style = None if use["count"] else "dim"
        tools.add_row(
            visible(name), *(f"{use[key]:g}" for key in ("count", "success", "failure", "success_rate")), style=style
        )
    console.print(tools)
