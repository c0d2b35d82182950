"""Trajectory files: one JSON object a line.

`save_trajectory` appends to `trajectory_samples.jsonl` or `failed_trajectories.jsonl` in the working folder;
`jsonl` says what an append promises. `load_trajectories` reads them back one by one, in constant memory, whoever
wrote them and however they are packed. `tests/formats/test_files.py` holds both to it.

A trajectory with a lone surrogate is kept, and read back here and by any JSON reader, but Arrow refuses such a
line and with it the whole file (measured, pyarrow 26): an export for a trainer has to leave that row out.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stemma.errors import BadRecord, NotFound
from stemma.formats.jsonl import append, check_keys, from_json, from_line, remove, to_line
from stemma.formats.lines import MAX_LINE, numbered_lines

COMPLETED_FILE = "trajectory_samples.jsonl"
FAILED_FILE = "failed_trajectories.jsonl"

_ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""What is read from a folder, best first. Not `.json`: run folders keep statistics and settings under it."""
_MERGED = "trajectories"
_PART = re.compile(r"batch_\d+(_output)?")

OnBad = Callable[[BadRecord], None]


def save_trajectory(
    trajectory: Sequence[Mapping[str, Any]],
    model: str,
    completed: bool,
    filename: str | os.PathLike[str] | None = None,
    *,
    now: Callable[[], datetime] = datetime.now,
) -> None:
    """Append `trajectory`, a `conversations` list, as one line; on the disk when this returns, or `NotWritten`."""
    _append(filename, _entry(trajectory, model, completed, now))


def _append(filename: str | os.PathLike[str] | None, entry: dict[str, Any]) -> str:
    """Append an entry, and say where; only what the caller named may be a link: an agent may work in this folder."""
    path = filename or (COMPLETED_FILE if entry["completed"] else FAILED_FILE)
    append(path, entry, follow=filename is not None)
    return os.fspath(path)


def _entry(
    trajectory: Sequence[Mapping[str, Any]], model: str, completed: bool, now: Callable[[], datetime]
) -> dict[str, Any]:
    # Always with microseconds: without a fraction Arrow takes the text for a timestamp, and a column has one type.
    timestamp = now().isoformat(timespec="microseconds")
    return {"conversations": trajectory, "timestamp": timestamp, "model": model, "completed": completed}


class Written(NamedTuple):
    """A line of a trajectory file."""

    file: str
    digest: str
    """SHA-256 of the line."""


def _find(written: Written) -> bytes | None:
    """The line itself; None if somebody has taken it out, or the whole file."""
    if not os.path.exists(written.file):
        return None
    lines = (line for _, line in numbered_lines(Path(written.file)) if line is not None)
    return next((whole for line in lines if sha256(whole := _ended(line)).hexdigest() == written.digest), None)


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"


class TrajectoryFile:
    """Where one conversation is saved at the end of each turn: a later turn takes the place of the earlier one.

    The new line is written before the old one is taken out: a crash in between leaves a shorter copy behind, and loses
    nothing. A conversation that went from failed to completed changes files. `written` says what was written last:
    whoever keeps it can go on in another process, and still no conversation stands in the files twice.
    """

    def __init__(self, filename: str | os.PathLike[str] | None = None, written: Written | None = None) -> None:
        self._filename = filename
        self.written = written

    def write(
        self,
        trajectory: Sequence[Mapping[str, Any]],
        model: str,
        completed: bool,
        *,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Save the conversation as it is now; on the disk when this returns, or `NotWritten`."""
        entry = _entry(trajectory, model, completed, now)
        path = _append(self._filename, entry)
        before, self.written = self.written, Written(path, sha256(to_line(entry)).hexdigest())
        if before is not None and (line := _find(before)) is not None:
            remove(before.file, line)


def load_trajectories(
    path: str | os.PathLike[str], *, on_bad: OnBad | None = None, unique_keys: bool = False
) -> Iterator[dict[str, Any]]:
    """Every entry of a `.jsonl`, `.jsonl.gz`, `.jsonl.zst` or `.json` file, or of all JSONL files in a folder.

    A folder's files come in natural order (`batch_2` before `batch_10`). Its parts `batch_*.jsonl` are passed over
    if the merged `trajectories.jsonl` is there too, and so is `x.jsonl.gz` beside `x.jsonl`: nothing is read twice.

    An entry is whatever object the line holds; blank lines are skipped. A line that holds none raises `BadRecord` with
    the file and the line, unless `on_bad` is given: then that gets the error and reading goes on after the line.
    With `unique_keys` so does an entry in which a key stands twice; without, the last of the two counts.
    """
    files = trajectory_files(Path(path))  # here and not below, so that a wrong path is told at the call
    return _entries(files, on_bad or _raise, unique_keys=unique_keys)


def _raise(error: BadRecord) -> None:
    raise error


def _entries(files: Sequence[Path], on_bad: OnBad, *, unique_keys: bool) -> Iterator[dict[str, Any]]:
    for file in files:
        for outcome in (_listed if file.suffix == ".json" else _lined)(file, unique_keys):
            if isinstance(outcome, BadRecord):
                on_bad(outcome)
            else:
                yield outcome


def _lined(file: Path, unique_keys: bool) -> Iterator[dict[str, Any] | BadRecord]:
    try:
        for number, line in numbered_lines(file):
            if line is None:
                yield BadRecord(f"is longer than {MAX_LINE >> 20} MiB", str(file), number)
            elif line.strip():
                yield _read(line, file, number, unique_keys)
    except BadRecord as error:  # a damaged file: nothing after this can be read, but the next file can
        yield error


def _read(line: bytes, file: Path, number: int, unique_keys: bool) -> dict[str, Any] | BadRecord:
    try:
        if unique_keys:
            check_keys(line)
        return from_line(line)
    except BadRecord as error:
        return BadRecord(error.problem, str(file), number)


def _listed(file: Path, unique_keys: bool) -> Iterator[dict[str, Any] | BadRecord]:
    """The entries of a `.json` file: a list of objects, or one object. It is read at once, within a line's limit."""
    with file.open("rb") as source:
        text = source.read(MAX_LINE + 1).removeprefix(b"\xef\xbb\xbf")
    if len(text) > MAX_LINE:
        yield BadRecord(f"is larger than {MAX_LINE >> 20} MiB; write it as .jsonl, one object a line", str(file))
        return
    try:
        value = from_json(text)
        if unique_keys:
            _check_items(text)
    except BadRecord as error:
        hint = "; if it holds one object a line, name it .jsonl" if "is not JSON" in error.problem else ""
        yield BadRecord(f"{error.problem}{hint}", str(file))
        return
    for number, item in enumerate(value if type(value) is list else [value], start=1):
        problem = f"item {number} is of type {type(item).__name__}, not an object"
        yield item if type(item) is dict else BadRecord(problem, str(file))


def _check_items(text: bytes) -> None:
    """`BadRecord` if an object of a JSON list, or the one object there is, has a key twice."""
    items = []
    try:
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):  # one object, or text that only the standard library takes
        check_keys(text)
    for number, item in enumerate(items, start=1):
        try:
            check_keys(bytes(item))
        except BadRecord as error:
            raise BadRecord(f"item {number} {error.problem}") from None


def trajectory_files(path: Path) -> list[Path]:
    """The files that hold the trajectories of `path`, none of them twice."""
    if not path.is_dir():
        path.stat()  # raises the FileNotFoundError everybody knows
        return [path]
    by_stem: dict[str, Path] = {}
    for ending in _ENDINGS:
        for file in path.glob(f"[!.]*{ending}"):
            by_stem.setdefault(file.name.removesuffix(ending), file)
    if not by_stem:
        raise NotFound(f"{path} holds no trajectory files; looked for {', '.join('*' + e for e in _ENDINGS)}")
    if (path / "manifest.json").is_file():  # an export, whose receipts are no trajectories
        by_stem.pop("receipts", None)
    if _MERGED in by_stem:
        by_stem = {stem: file for stem, file in by_stem.items() if not _PART.fullmatch(stem)}
    return [by_stem[stem] for stem in sorted(by_stem, key=_natural)]


def _natural(name: str) -> list[str | int]:
    """`batch_2` before `batch_10`: text and numbers alternate, so keys compare part by part."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
