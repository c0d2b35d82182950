"""The run's folder: parts appear as they fill, the rest at the end, and all of it again from the store.

    config.yaml  stemma.db  trajectories.jsonl  batch_001_output.jsonl …  failures.jsonl  statistics.json

`tests/batch/test_files.py` proves that a rebuilt folder is the same byte for byte.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stemma.batch.claims import alone
from stemma.batch.outputs import Parts, Shape, failure_lines, failures_of, join_parts, records
from stemma.batch.record import Record, read_record, task_name
from stemma.batch.statistics import Tally
from stemma.formats.export import Whole, write_whole
from stemma.store import Store


class RunFiles:
    """The files of one run."""

    def __init__(self, folder: Path, run: str, store: Store, shape: Shape, about: Mapping[str, Any]) -> None:
        self.folder, self._run, self._store, self._shape, self._about = folder, run, store, shape, about
        self._parts = Parts(folder, store, shape)
        self._missing: Counter[int] = Counter()
        """How many tasks of each part are still to end."""
        self._members: dict[int, list[Record]] = {}
        self._written: dict[int, int] = {}
        """With how many tasks each part was written here."""

    def expect(self, prompt_index: int, *, kept: bool) -> None:
        """Learn of a task before the first starts. A part that has some from earlier is written at the end."""
        self._missing[prompt_index // self._shape.batch_size + 1] += 1 if not kept else 1 << 40

    def ended(self, record: Record, line: bytes | None) -> None:
        """A task has ended, and this is its line, if it is to have one; the last of its part lets the part appear."""
        part = self._parts.part_of(record)
        if line is not None:
            self._parts.add(record, line)
        self._members.setdefault(part, []).append(record)
        self._missing[part] -= 1
        if not self._missing[part]:
            members = self._members.pop(part)
            with alone(self.folder):
                self._parts.write(part, members)
            self._written[part] = len(members)

    def numbers(self) -> dict[str, Any]:
        """The statistics of the run as it is in the store."""
        tally = Tally(self._shape.known_tools, self._shape.policies)
        for record in records(self._store, self._run):
            tally.add(record)
        return tally.numbers(self._about)

    def finish(self) -> dict[str, Any]:
        """Bring every file up to date with the store; the statistics."""
        with alone(self.folder):  # who comes last has seen what all others saved
            return self._finish()

    def _finish(self) -> dict[str, Any]:
        tally = Tally(self._shape.known_tools, self._shape.policies)
        parts: dict[int, list[Place]] = {}
        for record in records(self._store, self._run):
            tally.add(record)
            parts.setdefault(self._parts.part_of(record), []).append(Place(record.order, any(failures_of(record))))
        for part, members in parts.items():
            if self._written.get(part) != len(members):  # rows that moved stand in the part of their first place
                self._parts.write(part, map(self._record, members))
        if self._parts.noted:  # only now is it known what cannot be exported
            self._parts.noted = 0
            return self._finish()
        self._write_failures(sorted(place for members in parts.values() for place in members if place.failed))
        join_parts(self.folder, sorted(parts))
        numbers = tally.numbers(self._about)
        write_whole(self.folder / "statistics.json", msgspec.json.format(msgspec.json.encode(numbers)) + b"\n")
        return numbers

    def _record(self, place: "Place") -> Record:
        _, ordinal, sample, key = place.order
        return read_record(self._store.metadata(task_name(key, ordinal, sample)))

    def _write_failures(self, failed: list["Place"]) -> None:
        with Whole(self.folder / "failures.jsonl") as file:
            for record in map(self._record, failed):
                file.write(failure_lines(record, self._first_question(record)))

    def _first_question(self, record: Record) -> str:
        said = (m.get("content") for m in self._store.load(record.name) if m["role"] == "user")
        return str(next(said, ""))


class Place(NamedTuple):
    """All of a task that is in memory at the end of a run."""

    order: tuple[int, int, int, str]
    failed: bool
    """Whether something went wrong with it."""
