"""`stemma merge`: take stores into one. `tests/cli/test_merge.py` merges twice and finds nothing new."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stemma.cli.options import JsonOption, reading
from stemma.cli.screen import Screen

if TYPE_CHECKING:
    from stemma.store.protocol import MergeReport


def merge(
    target: Annotated[str, typer.Argument(help="The store that grows; made if it is not there.")],
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="The stores to take in.")],
    prefer: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help="Whose metadata counts where stores differ: target or source."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Take all graphs of other stores into one.

    A graph whose name holds another conversation in TARGET comes in under a name with a suffix. Metadata, such as
    rewards, is put together; what differs is listed, stays as it is in TARGET and makes the command end with 1, unless
    --prefer says whose counts. Merging twice changes nothing.
    """
    if prefer not in (None, "target", "source"):
        raise typer.BadParameter(f"--prefer is target or source; got {prefer!r}")
    reports = _merge(target, sources, {"target": "here", "source": "there"}.get(prefer or ""))
    if json:
        Screen().json({"target": target, "sources": [_as_json(path, report) for path, report in reports]})
    else:
        for path, report in reports:
            _print(target, path, report)
    if any(report.conflicts for _, report in reports):
        raise typer.Exit(1)


def _merge(target: str, sources: list[str], prefer: Any) -> "list[tuple[str, MergeReport]]":
    from stemma.store import open_store

    for path in sources:
        with reading(path):
            """A source that cannot be read must not leave a new, empty target behind."""
    reports = []
    with open_store(target) as into:
        for path in sources:
            with reading(path) as source:
                reports.append((path, into.merge(source, prefer)))
    return reports


def _as_json(path: str, report: "MergeReport") -> dict[str, Any]:
    import msgspec

    return {"source": path, **msgspec.to_builtins(report)}


def _print(target: str, path: str, report: "MergeReport") -> None:
    screen = Screen()
    counts = f"{len(report.added)} added, {len(report.same)} already there, {len(report.renamed)} renamed"
    screen.line((path, "bold"), " → ", (target, "bold"), f": {counts}")
    old_names = {new: old for old, new in report.renamed.items()}
    for name in report.added:
        was = f"  (was {old_names[name]}, a name that holds another conversation)" if name in old_names else ""
        screen.line(("  + ", "green"), name, (was, "dim"))
    for name in report.same:
        took = "  (took in metadata)" if name in report.updated else ""
        screen.line(("  = ", "dim"), (name, "dim"), (took, "dim"))
    for one in report.conflicts:
        screen.line(("  conflict ", "yellow"), f"{one.name}: {one.key} is {one.here!r} here and {one.there!r} there")
    if report.conflicts:
        screen.line(("  nothing of these was changed; --prefer target or source decides", "yellow"))
