"""Where a task works: a folder of its own that outlives a crash, so that a conversation goes on among its files.

The folder stands among temporary files, under a name made of the run's place and the task, and goes when the task has
ended. A row's `files` and the copy of its `cwd` are put there before the first turn. `tests/batch/test_places.py`
proves it.
"""

import os
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

from stemma.batch.prompts import BadPrompt, Row
from stemma.tools.workspace import own_folder

_FEW = 16
"""How many files are removed before a thread could be woken to do it."""


def places_of(run: Path) -> Path:
    """The folder under which all tasks of a run work."""
    mark = sha256(os.fsencode(run.resolve())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"stemma-run-{mark}"


def furnish(place: Path, row: Row) -> None:
    """Make the task's folder with what its row puts there, whole; one that a crash left is taken as it is."""
    if os.path.exists(place):
        return
    making = f"{place}.new"
    if row.cwd is not None and not os.path.isdir(row.cwd):
        raise BadPrompt(f"row {row.index + 1}: there is no folder {row.cwd!r} to work in a copy of")
    _make_empty(making)
    if row.cwd is not None:
        shutil.copytree(row.cwd, making, symlinks=True, dirs_exist_ok=True)
    for name, text in row.files.items():
        _write(making, os.path.normpath(name), text.encode("utf-8", "surrogateescape"))
    own_folder(making)
    os.rename(making, place)


def _make_empty(folder: str) -> None:
    try:
        os.mkdir(folder)
    except OSError:  # the run's first, or one that a crash has left half made
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, exist_ok=True)


def _write(folder: str, name: str, content: bytes) -> None:
    path = os.path.join(folder, name)
    if "/" in name:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def cleared_at_once(place: Path) -> bool:
    """Remove a task's folder if that is quickly done; False if a thread should do it."""
    try:
        with os.scandir(place) as entries:
            few = [entry for entry, _ in zip(entries, range(_FEW + 1), strict=False)]
        if len(few) > _FEW or any(entry.is_dir(follow_symlinks=False) for entry in few):
            return False
        for entry in few:
            os.unlink(entry.path)
        os.rmdir(place)
    except FileNotFoundError:
        return True
    except OSError:  # somebody has put something there meanwhile, or it is not ours to remove so simply
        return False
    return True
