"""Trajectory files, compressed row by row: in constant memory, in order, and from where it was if it was killed.

A folder's merged file and its parts are one and the same to `load_trajectories`, so nothing is compressed twice. Every
row of the source (or of the sample of it) is in the output, compressed or as it was; a line that is no row is counted,
named, and still in the source. `tests/compress/test_files.py` and `tests/compress/test_resume.py` prove it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stemma.compress.apply import Compressed
from stemma.compress.journal import Journal, Remembering
from stemma.compress.metrics import RowMetrics
from stemma.compress.outputs import Growing, Layout, layout, name_all, sizes
from stemma.compress.report import Forecasts
from stemma.compress.run import Run
from stemma.compress.sampling import Sample
from stemma.compress.stream import Job, compressing, counting, job
from stemma.compress.summary import Summarizer
from stemma.compress.turns import conversation_of
from stemma.errors import BadRecord
from stemma.formats.export import compact_json, write_whole
from stemma.formats.files import load_trajectories, trajectory_files
from stemma.formats.lines import numbered_lines


class Entry(msgspec.Struct, frozen=True):
    """A row of a file, and what keeps it from being a conversation."""

    file: int
    row: int
    entry: dict[str, Any]
    problem: str = ""


class Source:
    """The rows of some files, and what in them is none."""

    def __init__(self, path: Path, sample: Sample) -> None:
        self.path, self.files, self._sample = path, trajectory_files(path), sample
        self.unreadable: list[BadRecord] = []

    def rows(self) -> int:
        """About how many rows there will be."""
        return sum(self._sample.size(_lines(file)) for file in self.files)

    def jobs(self, number: int, start: int = 0) -> Iterator[Job[Entry]]:
        """The rows of one of the files, from the one at `start`."""
        entries = load_trajectories(self.files[number], on_bad=self.unreadable.append)
        if self._sample.percent < 100:
            entries = self._sample.of(entries, _lines(self.files[number]), number)
        for row, entry in enumerate(entries):
            if row >= start:
                yield _job(number, row, entry)


def _lines(file: Path) -> int:
    if file.suffix == ".json":
        return sum(1 for _ in load_trajectories(file, on_bad=lambda _: None))
    return sum(1 for _, line in numbered_lines(file) if line is None or line.strip())


def _job(file: int, row: int, entry: dict[str, Any]) -> Job[Entry]:
    try:
        items, problem = conversation_of(entry) or [], ""
    except BadRecord as error:
        items, problem = [], error.problem
    tools = entry.get("tools")
    beside = tools if isinstance(tools, str) else compact_json(tools) if tools else ""
    return job(items, Entry(file, row, entry, problem), beside if items else "")


async def forecast_files(source: Source, run: Run) -> Forecasts:
    """What a run would do, with real counts and no summaries."""
    found = Forecasts()
    for number in range(len(source.files)):
        async for batch in counting(source.jobs(number), run.counter, run.settings.processing.num_workers):
            for _, row in batch:
                found.add(row.total, await run.compressor.forecast(row))
                run.on_row()
    return found


async def compress_files(source: Source, out: Path | None, run: Run, identity: dict[str, Any]) -> Layout:
    """Compress into `out`; a killed run of the same `identity` is taken up, and the report has the rows of both."""
    files = layout(source.path, source.files, out, run.settings)
    files.journal.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(files.journal, identity)
    try:
        for number, (done, ends) in enumerate(_taken_up(journal, files, run)):
            if not files.targets[number].main.exists():  # else it was killed while the files got their names
                growing = Growing(number, files.targets[number], ends, journal)
                await _compress_file(source.jobs(number, done), growing, journal, run)
        run.report.unreadable = len(source.unreadable)
        if run.settings.metrics.enabled:
            write_whole(files.report, msgspec.json.format(msgspec.json.encode(run.report.to_dict())) + b"\n")
        name_all(files.targets)
    except BaseException:
        journal.close()
        raise
    journal.finish()
    return files


def _taken_up(journal: Journal, files: Layout, run: Run) -> list[tuple[int, list[int]]]:
    """How many rows of each target are written, and how long its files are with them."""
    found: list[tuple[int, list[int]]] = [(0, [0, 0]) for _ in files.targets]
    for written in journal.replay({n: sizes(target) for n, target in enumerate(files.targets)}):
        found[written.file] = (written.row + 1, written.ends)
        run.report.add(written.metrics)
        run.on_row()
    return found


async def _compress_file(jobs: Iterator[Job[Entry]], growing: Growing, journal: Journal, run: Run) -> None:
    processing, metrics = run.settings.processing, run.settings.metrics

    def remembering(entry: Entry) -> Summarizer:
        return Remembering(run.summarizer, journal, (entry.file, entry.row))

    try:
        async for entry, made in compressing(jobs, run.counter, run.compressor, processing, remembering):
            told = _told(entry, made)
            row = {**_row(entry, made), **({"compression_metrics": told.to_dict()} if metrics.per_trajectory else {})}
            growing.write(entry.row, row, told, apart=told.still_over_limit and not processing.save_over_limit)
            run.report.add(told)
            run.on_row()
    finally:
        growing.close()


def _told(entry: Entry, made: Compressed) -> RowMetrics:
    if not entry.problem:
        return made.metrics
    return msgspec.structs.replace(made.metrics, failed=True, why=entry.problem, skipped_under_target=False)


def _row(entry: Entry, made: Compressed) -> dict[str, Any]:
    """The entry with its conversation as it is now."""
    if not made.metrics.was_compressed:
        return entry.entry
    key = "conversations" if "conversations" in entry.entry else "messages"
    return {**entry.entry, key: made.items}
