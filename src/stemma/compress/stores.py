"""Graphs of a store, compressed in place: a new line in the same graph, the old one kept as a version.

A compressed line traces back to its original (`graph.previous`, reason `compression`). What was sampled under the full
context stays with that version, so it is trained there and nowhere else: in the new line it is context. Subagents'
conversations are compressed as well. A graph is saved when it is done, and what was done to it stands in its metadata,
so the same run once more asks for nothing again. `tests/compress/test_stores.py` proves it.

    S U a t a t a     →     S' U Σ a     a version: S U a t a t a, with all its calls
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from stemma.compress.apply import Compressed
from stemma.compress.journal import Journal, Remembering, Written
from stemma.compress.metrics import RowMetrics
from stemma.compress.report import Forecasts
from stemma.compress.run import Run
from stemma.compress.sampling import Sample
from stemma.compress.stream import Job, compressing, counting, job
from stemma.compress.summary import Summarizer
from stemma.core.graph import MessageGraph
from stemma.formats.export import compact_json, write_whole
from stemma.formats.training import RESERVED
from stemma.store import Store

REASON = "compression"


class Member(msgspec.Struct, frozen=True):
    """A conversation of a named graph: its own, or that of a subagent below it."""

    name: str
    place: tuple[int, int]
    """Which named graph, and which conversation of it."""
    top: MessageGraph
    graph: MessageGraph
    last: bool
    """Whether it is the last one of the named graph, which can then be saved."""


class Graphs:
    """The conversations of a store, or of one run in it."""

    def __init__(self, store: Store, run: str | None = None, sample: Sample | None = None) -> None:
        self._store = store
        names = store.names(run)
        self.names = list((sample or Sample()).of(names, len(names)))

    def rows(self) -> int:
        """How many named graphs there are."""
        return len(self.names)

    def jobs(self, by: str = "") -> Iterator[Job[Member]]:
        """Every conversation that was not yet compressed `by` this run."""
        for number, name in enumerate(self.names):
            top = self._store.load(name)
            if by and self.done(name) == {"by": by, "tip": top.tip}:
                continue
            members = top.reach()
            for below, graph in enumerate(members):
                owner = Member(name, (number, below), top, graph, below + 1 == len(members))
                yield job(graph.messages(), owner, _tools(graph))

    def done(self, name: str) -> Any:
        """Which run compressed a graph, and its tip after that."""
        return self._store.metadata(name).get(RESERVED, {}).get(REASON)

    def save(self, member: Member, by: str) -> None:
        """Keep a graph, and that it is done."""
        metadata = self._store.metadata(member.name)
        ours = {**metadata.get(RESERVED, {}), REASON: {"by": by, "tip": member.top.tip}}
        self._store.save(member.top, member.name, metadata={**metadata, RESERVED: ours})


def _tools(graph: MessageGraph) -> str:
    """The tools offered in the newest call: they are part of the context."""
    newest = graph.last_call()
    return compact_json(newest.call.tools) if newest is not None and newest.call.tools else ""


async def forecast_graphs(graphs: Graphs, run: Run) -> Forecasts:
    """What a run would do, with real counts and no summaries."""
    found = Forecasts()
    async for batch in counting(graphs.jobs(), run.counter, run.settings.processing.num_workers):
        for one, row in batch:
            found.add(row.total, await run.compressor.forecast(row))
            if one.owner.last:
                run.on_row()
    return found


async def compress_graphs(graphs: Graphs, beside: Path, run: Run, identity: dict[str, Any]) -> Path | None:
    """Compress every graph; the journal and the report lie in the folder `beside`, the report's path is returned."""
    by = sha256(compact_json(identity).encode()).hexdigest()
    journal = Journal(beside / f".{REASON}.journal", identity)
    try:
        for _ in journal.replay({}):
            pass  # what was paid for and not used is now known
        await _compress_each(graphs, by, journal, run)
    except BaseException:
        journal.close()
        raise
    journal.finish()
    if not run.settings.metrics.enabled:
        return None
    report = beside / run.settings.metrics.output_file
    write_whole(report, msgspec.json.format(msgspec.json.encode(run.report.to_dict())) + b"\n")
    return report


async def _compress_each(graphs: Graphs, by: str, journal: Journal, run: Run) -> None:
    def remembering(member: Member) -> Summarizer:
        return Remembering(run.summarizer, journal, member.place)

    processing = run.settings.processing
    written: list[Written] = []
    async for member, made in compressing(graphs.jobs(by), run.counter, run.compressor, processing, remembering):
        if made.metrics.was_compressed:
            add_line(member.graph, made)
        run.report.add(made.metrics)
        written.append(Written(*member.place, [], made.metrics))
        if member.last:
            if any(_worth_noting(row.metrics) for row in written):
                graphs.save(member, by)
            journal.write(written)
            written = []
            run.on_row()


def _worth_noting(metrics: RowMetrics) -> bool:
    """Whether the graph changed, or was paid for in vain; what failed is tried again."""
    return metrics.was_compressed or (metrics.api_calls > 0 and not metrics.failed)


def add_line(graph: MessageGraph, made: Compressed) -> None:
    """The compressed conversation as the graph's line; the line before it becomes a version."""
    with graph.edit(reason=REASON):
        graph[:] = made.items
