"""The files of a run, each made from the store alone: the same store gives the same bytes.

    batch_001_output.jsonl …   the conversations of so many prompts each, in the order of the dataset
    trajectories.jsonl         all of them
    failures.jsonl             what could not be done, and why
    statistics.json            the whole run in numbers

A part is written as soon as the last of its tasks has ended, from what is in memory where it still is. Every file
appears whole: it is written beside its place and moved there. `tests/batch/test_outputs.py` proves it.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stemma.batch.policies import Policies
from stemma.batch.record import Failure, Record, as_metadata, failure_of, read_record
from stemma.core.graph import MessageGraph
from stemma.formats.entries import Columns, batch_entry
from stemma.formats.export import Whole
from stemma.formats.hermes import to_trajectory
from stemma.formats.jsonl import to_line
from stemma.store import Store
from stemma.tools.toolsets import TOOL_TO_TOOLSET_MAP


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What all entries of a run have in common."""

    columns: Columns
    known_tools: tuple[str, ...] = tuple(TOOL_TO_TOOLSET_MAP)
    batch_size: int = 100
    """How many prompts a part holds."""
    policies: Policies = Policies()


def records(store: Store, run: str) -> Iterator[Record]:
    """The record of every task of a run that was begun, in no order that matters."""
    for _, metadata in store.each_metadata(run):
        yield read_record(metadata)


def own_metadata(record: Record, model: str, policies: Policies) -> dict[str, Any]:
    """The columns that a run adds to those of its dataset."""
    found = {"stemma_name": record.name, "stemma_model": model, "stemma_sample": record.sample}
    return {**found, "stemma_reward": record.reward} if policies.rewarded else found


def entry_line(graph: MessageGraph, record: Record, shape: Shape) -> bytes:
    """The line of one ended conversation."""
    last = graph.last_call()
    tools, model = (last.call.tools, last.call.model) if last else (None, "")
    entry = batch_entry(
        to_trajectory(graph.messages(), tools),
        prompt_index=record.prompt_index,
        metadata={**record.metadata, **own_metadata(record, model, shape.policies)},
        columns=shape.columns,
        completed=record.status == "completed",
        partial=record.status == "stopped",
        api_calls=record.api_calls,
        toolsets_used=record.toolsets,
        tools_used=record.tools,
        known_tools=shape.known_tools,
    )
    return to_line(entry)


def exported_line(graph: MessageGraph, record: Record, shape: Shape) -> tuple[bytes | None, Record]:
    """The line of a task, if it has ended and no policy leaves it out; and the record, which says why there is none
    although one was wanted."""
    if not shape.policies.wants(record):
        return None, record
    try:
        line, failure = entry_line(graph, record, shape), None
    except Exception as problem:  # noqa: BLE001  the boundary: what one conversation breaks must not end the run
        line, failure = None, failure_of(problem)
    return line, msgspec.structs.replace(record, export_failure=failure)


def failures_of(record: Record) -> Iterator[tuple[str, Failure]]:
    """All that went wrong with a task: what of it (`task`, `reward`, `export`), and how."""
    if record.status == "failed":
        yield "task", record.failure or Failure("", "")
    if record.reward_failure is not None:
        yield "reward", record.reward_failure
    if record.export_failure is not None:
        yield "export", record.export_failure


def failure_lines(record: Record, prompt: str) -> bytes:
    """The lines of a task for all that went wrong with it, one each."""
    about = {
        "name": record.name,
        "prompt_index": record.prompt_index,
        "id": record.id,
        "sample": record.sample,
        "prompt": prompt,
    }
    counts = {"attempts": record.attempts, "api_calls": record.api_calls}
    return b"".join(
        to_line({**about, "what": what, "error": failure.kind, "text": failure.text, **counts})
        for what, failure in failures_of(record)
    )


class Parts:
    """Part files, filled as tasks end."""

    def __init__(self, folder: Path, store: Store, shape: Shape) -> None:
        self.folder, self._store, self._shape = folder, store, shape
        self.noted = 0
        """How many records were changed, because an entry could not be made, or now can."""
        self._lines: dict[int, dict[str, bytes]] = {}
        """What has ended meanwhile and waits for its part: part → task → line."""

    def part_of(self, record: Record) -> int:
        """In which part a task's entry stands; they count from 1."""
        return record.prompt_index // self._shape.batch_size + 1

    def add(self, record: Record, line: bytes) -> None:
        """Keep the line of a task that has ended until its part is written."""
        self._lines.setdefault(self.part_of(record), {})[record.name] = line

    def write(self, part: int, members: Iterable[Record]) -> None:
        """Write a part with all of its ended members."""
        ready = self._lines.pop(part, {})
        with Whole(self.folder / part_name(part)) as file:
            for record in sorted(members, key=lambda one: one.order):
                if self._shape.policies.wants(record):
                    file.write(ready.get(record.name) or self._from_store(record))

    def _from_store(self, record: Record) -> bytes:
        """The line of a task; nothing if none can be made of it, which its record then says."""
        graph = self._store.load(record.name)
        line, now = exported_line(graph, record, self._shape)
        if now != record:
            self._store.save(graph, record.name, metadata=as_metadata(now))
            self.noted += 1
        return line or b""


def part_name(part: int) -> str:
    """The file of a part."""
    return f"batch_{part:03d}_output.jsonl"


def join_parts(folder: Path, parts: Iterable[int]) -> None:
    """`trajectories.jsonl`, from the parts; parts of an earlier, longer form of the run go."""
    wanted = [folder / part_name(part) for part in parts]
    with Whole(folder / "trajectories.jsonl") as file:
        for path in wanted:
            with path.open("rb") as source:
                shutil.copyfileobj(source, file)
    for stale in set(folder.glob("batch_*_output.jsonl")) - set(wanted):
        stale.unlink()


_KINDS = {"str": str, "int": int, "float": float, "bool": bool}


def columns_as_names(columns: Columns) -> dict[str, Any]:
    """Columns in a form that a store keeps; `columns_from_names` reads it back."""
    return {"plain": {name: kind.__name__ for name, kind in columns.plain.items()}, "rest": columns.rest}


def columns_from_names(kept: Mapping[str, Any]) -> Columns:
    """Columns as a run's metadata has them."""
    return Columns({name: _KINDS[kind] for name, kind in kept["plain"].items()}, rest=kept["rest"])


def shape_of(metadata: Mapping[str, Any]) -> Shape:
    """The shape that a run's own metadata tells."""
    return Shape(
        columns=columns_from_names(metadata["columns"]),
        known_tools=tuple(metadata["known_tools"]),
        batch_size=metadata["about"]["batch_size"],
        policies=msgspec.convert(metadata["policies"], Policies),
    )


def kept_shape(shape: Shape) -> dict[str, Any]:
    """What a run's metadata must hold so that `shape_of` finds the shape again."""
    return {
        "columns": columns_as_names(shape.columns),
        "known_tools": list(shape.known_tools),
        "policies": msgspec.to_builtins(shape.policies),
    }
