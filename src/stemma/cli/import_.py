"""`stemma import`: existing datasets as graphs. Once more changes nothing. `tests/cli/test_import.py` runs it."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stemma.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from stemma.cli.screen import Screen
from stemma.errors import BadRecord, NotFound

if TYPE_CHECKING:
    from stemma.formats.importing import Imported
    from stemma.store import Store

_WAITING = 256
"""How many graphs may be on their way to the disk: memory stays flat, and commits are shared."""


class Counts:
    """What came of an import."""

    def __init__(self) -> None:
        self.lines = 0
        self.added = 0
        self.bad: list[str] = []


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Dataset files: .jsonl, .jsonl.gz, .jsonl.zst.")
    ],
    store: StoreOption = DEFAULT_STORE,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="KIND", help="hermes, sharegpt or openai; seen by itself.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="The run to put the graphs into; else the file's name.")] = None,
    json: JsonOption = False,
) -> None:
    """Put existing datasets into a store, each line a graph; the line itself is kept.

    Turns of the model count as sampled by the model that the line names. Importing a file again changes nothing.
    """
    from stemma.store import open_store

    counts = Counts()
    with open_store(store) as into:
        known = set(into.names())
        for file in files:
            _import_file(file, as_, into, run or _stem(file), known, counts)
    if json:
        Screen().json({"lines": counts.lines, "added": counts.added, "unreadable": counts.bad})
        return
    screen = Screen()
    there = counts.lines - counts.added - len(counts.bad)
    screen.line((store, "bold"), f": {counts.added:,} graphs added, {there:,} already there")
    for problem in counts.bad[:10]:
        screen.line(("  not read   ", "yellow"), problem)
    if counts.bad:
        screen.line(f"  {len(counts.bad):,} lines could not be read")
        raise typer.Exit(1)


def _import_file(file: Path, kind: str | None, into: "Store", run: str, known: set[str], counts: Counts) -> None:
    waiting: deque[Future[None]] = deque()
    for found in _graphs(file, kind, counts):
        if found.name in known:
            continue
        counts.added += 1
        waiting.append(into.save_soon(found.graph, found.name, run=run, metadata=found.metadata))
        if len(waiting) >= _WAITING:
            waiting.popleft().result()
    for saved in waiting:
        saved.result()


def _graphs(file: Path, kind: str | None, counts: Counts) -> "Iterator[Imported]":
    from stemma.formats.importing import Importer
    from stemma.formats.jsonl import from_line
    from stemma.formats.lines import numbered_lines
    from stemma.formats.reading import KINDS

    if kind is not None and kind not in KINDS:
        raise NotFound(f"there is no kind {kind!r} of dataset; choose one of {', '.join(KINDS)}")
    importer = Importer(_stem(file), kind)
    for number, line in numbered_lines(file):
        if line is not None and not line.strip():
            continue
        counts.lines += 1
        try:
            if line is None:
                raise BadRecord("is too long")
            yield importer.graph(from_line(line), line, number)
        except BadRecord as problem:
            counts.bad.append(str(BadRecord(problem.problem, str(file), number)))


def _stem(file: Path) -> str:
    return file.name.partition(".")[0] or "dataset"
