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
    json: JsonOption = False,
) -> None:
    """Take all graphs of other stores into one.

    A graph whose name holds another conversation in TARGET comes in under a name with a suffix.
    Merging twice changes nothing.
    """
    reports = _merge(target, sources)
    if json:
        Screen().json({"target": target, "sources": [_as_json(path, report) for path, report in reports]})
    else:
        for path, report in reports:
            _print(target, path, report)


def _merge(target: str, sources: list[str]) -> "list[tuple[str, MergeReport]]":
    from stemma.store import open_store

    for path in sources:
        with reading(path):
            """A source that cannot be read must not leave a new, empty target behind."""
    reports = []
    with open_store(target) as into:
        for path in sources:
            with reading(path) as source:
                reports.append((path, into.merge(source)))
    return reports


def _as_json(path: str, report: "MergeReport") -> dict[str, Any]:
    return {"source": path, "added": report.added, "same": report.same, "renamed": report.renamed}


def _print(target: str, path: str, report: "MergeReport") -> None:
    screen = Screen()
    counts = f"{len(report.added)} added, {len(report.same)} already there, {len(report.renamed)} renamed"
    screen.line((path, "bold"), " → ", (target, "bold"), f": {counts}")
    old_names = {new: old for old, new in report.renamed.items()}
    for name in report.added:
        was = f"  (was {old_names[name]}, a name that holds another conversation)" if name in old_names else ""
        screen.line(("  + ", "green"), name, (was, "dim"))
    for name in report.same:
        screen.line(("  = ", "dim"), (name, "dim"))
