"""Where compressed rows are written: `.partial` files that get their names when the whole run is done.

Each source has a target, and beside it one for rows that stay over the limit, if they are to be kept apart. Rows are
written in order; the journal is told after them how long the files are, so a run can be taken up where it was killed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from stemma.compress.errors import OutputThere
from stemma.compress.journal import Journal, Written
from stemma.compress.metrics import RowMetrics
from stemma.compress.settings import Settings
from stemma.errors import NotWritten
from stemma.formats.jsonl import to_line

_ENDINGS = (".jsonl.gz", ".jsonl.zst", ".jsonl", ".json")
_TOGETHER = 64
"""Rows that are flushed at once."""


class Target(msgspec.Struct, frozen=True):
    """What becomes of one source."""

    source: Path
    main: Path
    over: Path
    """For rows over the limit, where they are kept apart."""

    @property
    def files(self) -> tuple[Path, Path]:
        return self.main, self.over


class Layout(msgspec.Struct, frozen=True):
    """All files of a run."""

    targets: list[Target]
    report: Path
    journal: Path


def layout(source: Path, files: Sequence[Path], out: Path | None, settings: Settings) -> Layout:
    """The files for a source file, or for the files of a source folder; `OutputThere` if one would be overwritten."""
    made = _of_folder(source, files, out, settings) if source.is_dir() else _of_file(source, out, settings)
    if not made.journal.exists():
        finished = [path for target in made.targets for path in target.files if path.exists()]
        if finished:
            raise OutputThere(f"{finished[0]} is there already; remove it, or name another output with -o")
    return made


def _of_file(source: Path, out: Path | None, settings: Settings) -> Layout:
    name = f"{_stem(source)}{settings.output.output_suffix}.jsonl"
    main = source.with_name(name) if out is None else out / name if out.is_dir() else out
    return Layout(
        [_target(source, main)],
        main.with_name(f"{_stem(main)}_metrics.json"),
        main.with_name(f"{main.name}.journal"),
    )


def _of_folder(source: Path, files: Sequence[Path], out: Path | None, settings: Settings) -> Layout:
    folder = out or source.with_name(source.name + settings.output.output_suffix)
    if folder.resolve() == source.resolve():
        raise OutputThere(f"{folder} is the source itself; name another output with -o")
    targets = [_target(file, folder / f"{_stem(file)}.jsonl") for file in files]
    return Layout(targets, folder / settings.metrics.output_file, folder / ".compression.journal")


def _target(source: Path, main: Path) -> Target:
    return Target(source, main, main.with_name(f"{_stem(main)}_over_limit.jsonl"))


def _stem(path: Path) -> str:
    ending = next((ending for ending in _ENDINGS if path.name.endswith(ending)), path.suffix)
    return path.name.removesuffix(ending)


def partial(path: Path) -> Path:
    """The name a file has while it grows."""
    return path.with_name(path.name + ".partial")


def sizes(target: Target) -> list[int]:
    """How long the growing files are; one that has its name already has everything."""
    return [_size(path) for path in target.files]


def _size(path: Path) -> int:
    if partial(path).exists():
        return partial(path).stat().st_size
    return 1 << 62 if path.exists() else 0


class Growing:
    """The files of one target, open at where the journal says."""

    def __init__(self, number: int, target: Target, ends: Sequence[int], journal: Journal) -> None:
        self._number, self._journal = number, journal
        self._files = [_open_at(partial(path), end) for path, end in zip(target.files, ends, strict=True)]
        self._ends = list(ends)
        self._noted: list[Written] = []

    def write(self, row: int, entry: dict[str, Any], metrics: RowMetrics, *, apart: bool) -> None:
        """The next row; on its way to the disk when `_TOGETHER` are."""
        line = to_line(entry)
        self._files[apart].write(line)
        self._ends[apart] += len(line)
        self._noted.append(Written(self._number, row, self._ends.copy(), metrics))
        if len(self._noted) >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system, rows first."""
        try:
            for file in self._files:
                file.flush()
        except OSError as problem:
            raise NotWritten(f"{problem.strerror}; make room and run the same command again") from problem
        self._journal.write(self._noted)
        self._noted = []

    def close(self) -> None:
        """Everything on the disk."""
        self.flush()
        for file in self._files:
            os.fsync(file.fileno())
            file.close()


def _open_at(path: Path, end: int) -> IO[bytes]:
    path.touch()
    os.truncate(path, end)
    return path.open("ab")


def name_all(targets: Sequence[Target]) -> None:
    """Give every file its name; an empty one for rows kept apart is no file."""
    for target in targets:
        for path in target.files:
            if not partial(path).exists():
                continue  # named by the run that was killed here
            if path is target.over and not partial(path).stat().st_size:
                partial(path).unlink()
            else:
                os.replace(partial(path), path)
