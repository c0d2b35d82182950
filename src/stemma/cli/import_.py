"""`stemma import`: existing datasets as graphs. Again changes nothing. `tests/cli/test_export_import.py` runs it."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stemma.cli.options import CONFIGURED, JsonOption, StoreOption
from stemma.cli.screen import Screen
from stemma.errors import BadRecord, NotFound

if TYPE_CHECKING:
    from stemma.formats.importing import Imported
    from stemma.store import Store
    from stemma.store.protocol import Prepared

_TOGETHER = 16 << 20
"""How many bytes of lines are written in one transaction."""
_BATCH = 1 << 20
"""How many bytes of lines are read together."""

Line = tuple[int, bytes | None]
"""Its number and what it holds; None if that is too long."""


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
    store: StoreOption = CONFIGURED,
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="KIND", help="hermes, sharegpt, llamafactory or openai; seen by itself."),
    ] = None,
    run: Annotated[str | None, typer.Option(help="The run to put the graphs into; else the file's name.")] = None,
    json: JsonOption = False,
) -> None:
    """Put existing datasets into a store, each line a graph; the line itself is kept.

    Turns of the model count as sampled by the model that the line names. Importing a file again changes nothing.
    """
    from stemma.store import open_store

    counts = Counts()
    for file in files:
        if not file.is_file():
            raise NotFound(f"there is no file {file}; a folder's files are named one by one")
    with open_store(store) as into:
        known = set(into.names())
        for file in files:
            _import_file(file, as_, into, run or _stem(file), known, counts)
    if json:
        Screen().json({"lines": counts.lines, "added": counts.added, "unreadable": counts.bad})
    else:
        _print(store, counts)
    if counts.bad or not counts.lines:
        raise typer.Exit(1)


def _print(store: str, counts: Counts) -> None:
    screen = Screen()
    there = counts.lines - counts.added - len(counts.bad)
    screen.line((store, "bold"), f": {counts.added:,} graphs added, {there:,} already there")
    for problem in counts.bad[:10]:
        screen.line(("  not read   ", "yellow"), problem)
    if counts.bad:
        screen.line(f"  {len(counts.bad):,} lines could not be read")
    if not counts.lines:
        screen.line(("  not read   ", "yellow"), "there is no line in what was given")


def _import_file(file: Path, kind: str | None, into: "Store", run: str, known: set[str], counts: Counts) -> None:
    prepared: list[Prepared] = []
    size = 0
    try:
        for found in _graphs(file, kind, counts):
            if found.name in known:
                continue
            counts.added += 1
            prepared.append(into.prepare(found.conversation, found.name, run=run, metadata=found.metadata))
            size += found.size
            if size > _TOGETHER:
                into.write(prepared)
                prepared, size = [], 0
    finally:  # a file may be damaged further on: what was read of it is kept
        into.write(prepared)


def _graphs(file: Path, kind: str | None, counts: Counts) -> "Iterator[Imported]":
    from stemma.formats.ahead import ahead
    from stemma.formats.importing import Importer, read_numbered
    from stemma.formats.lines import numbered_lines
    from stemma.formats.reading import KINDS

    if kind is not None and kind not in KINDS:
        raise NotFound(f"there is no kind {kind!r} of dataset; choose one of {', '.join(KINDS)}")
    importer = Importer(_stem(file))
    damage: list[BadRecord] = []
    lines = _until_damaged(numbered_lines(file), damage)
    for batch, found in ahead(partial(read_numbered, kind=kind), _batches(lines)):
        for (number, line), read in zip(batch, found, strict=True):
            counts.lines += 1
            if isinstance(read, BadRecord):
                counts.bad.append(str(BadRecord(read.problem, str(file), number)))
            elif line is not None:
                yield importer.named(read, line, number)
    if damage:
        raise damage[0]


def _until_damaged(lines: Iterable[Line], damage: list[BadRecord]) -> Iterator[Line]:
    """The lines of a compressed file up to its damage, which is told when they are all kept."""
    try:
        yield from lines
    except BadRecord as problem:
        damage.append(problem)


def _batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines that are not blank, about `_BATCH` bytes at a time."""
    batch: list[Line] = []
    size = 0
    for number, line in lines:
        if line is None or line.strip():
            batch.append((number, line))
            size += len(line or b"")
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _stem(file: Path) -> str:
    return file.name.partition(".")[0] or "dataset"
