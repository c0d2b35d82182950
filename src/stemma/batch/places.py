"""Where a task works: a folder of its own, which nobody else can read or replace.

    /tmp/stemma-run-3f9c…/TASK    while a task runs; gone when it has ended
    runs/NAME/unfinished/TASK     the files of a task that failed or was interrupted after its tools had run

The folder above the tasks' is made exclusively, under a random name, mode 0700; its owner and mode are checked whenever
it is opened. The run's folder remembers the name, so that after a crash a conversation goes on among its files. As root
all of it belongs to nobody, like the commands that work there. No link is followed when a folder is taken or removed.
A row's `files` and the copy of its `cwd` are put there before the first turn. `tests/batch/test_places.py` proves it.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from secrets import token_hex

from stemma.batch.claims import alone
from stemma.batch.prompts import BadPrompt, Row
from stemma.errors import StemmaError
from stemma.formats.export import write_whole
from stemma.tools.rooted import replacing
from stemma.tools.tool import ToolError
from stemma.tools.workspace import NOBODY, own_folder, remove_folder

REMEMBERED = "working-folder"
"""The file in the run's folder that names the folder of its tasks."""
UNFINISHED = "unfinished"
_PREFIX = "stemma-run-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FEW = 16
"""How many files are removed before a thread could be woken to do it."""


class NotOurs(StemmaError):
    """A working folder that somebody else has put in our place."""


class Places:
    """The folders of a run's tasks, as one of its processes has them."""

    def __init__(self, run: Path) -> None:
        """Take the folder that the run has, or make one; it stays until the last process that has it closes it."""
        self._run = run
        with alone(run):
            self.root, self._folder = _taken(run) or _made(run)
            flock(self._folder, LOCK_SH)

    def path(self, task: str) -> Path:
        """Where a task works."""
        return self.root / task

    def furnish(self, task: str, row: Row) -> None:
        """Make a task's folder with what its row puts there, whole; what the task has left earlier is taken up."""
        found = self._found(task)
        if found is not None:
            if not stat.S_ISDIR(found.st_mode) or found.st_uid not in _owners():
                raise NotOurs(f"{self.path(task)} is not a folder of ours; remove it and run this again")
            return
        kept = self._run / UNFINISHED / task
        if kept.is_dir() and not kept.is_symlink():
            _move(kept, self.path(task))
        else:
            self._make(task, row)

    def keep(self, task: str) -> None:
        """Move a task's folder to the run's own: its tools have worked there, and it is to go on later."""
        if self._found(task) is None:
            return
        kept = self._run / UNFINISHED
        kept.mkdir(mode=0o700, exist_ok=True)
        remove_folder(kept / task)
        with suppress(subprocess.CalledProcessError):  # no room there: it stays where it is, and is found again
            _move(self.path(task), kept / task)

    def clear(self, task: str) -> None:
        """Remove a task's folder."""
        if not self.cleared_at_once(task):
            remove_folder(self.path(task))

    def cleared_at_once(self, task: str) -> bool:
        """Remove a task's folder if that is quickly done; False if a thread should do it."""
        try:
            folder = os.open(task, _FOLDER, dir_fd=self._folder)
        except FileNotFoundError:
            return True
        except OSError:  # a link, or a folder that its own commands have closed
            return False
        try:
            return self._emptied(folder, task)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Let go of the folder, and remove it if no other process has it and nothing is left in it."""
        try:
            with alone(self._run), suppress(OSError):  # others have it, or some tasks will go on there
                flock(self._folder, LOCK_EX | LOCK_NB)
                os.rmdir(self.root)
                os.unlink(self._run / REMEMBERED)
            with suppress(OSError):
                os.rmdir(self._run / UNFINISHED)
        finally:
            os.close(self._folder)

    def _emptied(self, folder: int, task: str) -> bool:
        try:
            with os.scandir(folder) as entries:
                few = [entry for entry, _ in zip(entries, range(_FEW + 1), strict=False)]
            if len(few) > _FEW or any(entry.is_dir(follow_symlinks=False) for entry in few):
                return False
            for entry in few:
                os.unlink(entry.name, dir_fd=folder)
            os.rmdir(task, dir_fd=self._folder)
        except OSError:  # somebody has put something there meanwhile, or it is not ours to remove so simply
            return False
        return True

    def _found(self, task: str) -> os.stat_result | None:
        try:
            return os.stat(task, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _make(self, task: str, row: Row) -> None:
        if row.cwd is not None and not os.path.isdir(row.cwd):
            raise BadPrompt(f"row {row.index + 1}: there is no folder {row.cwd!r} to work in a copy of")
        making = self.path(f"{task}.new")
        try:
            os.mkdir(making, 0o700)
        except FileExistsError:  # a crash has left it half made
            remove_folder(making)
            os.mkdir(making, 0o700)
        if row.cwd is not None:
            shutil.copytree(row.cwd, making, symlinks=True, dirs_exist_ok=True)
            os.chmod(making, 0o700)  # the copy has the mode of what was copied
        for name, text in row.files.items():
            _write(making, name, text, row)
        own_folder(making)
        os.rename(making, self.path(task))


def _write(folder: Path, name: str, text: str, row: Row) -> None:
    try:
        with replacing(folder, name, None) as target:  # a row may put a repository there, hooks included
            target.write(text.encode("utf-8", "surrogateescape"))
    except ToolError as problem:  # such as a link in the copy of `cwd` that leads out of it
        raise BadPrompt(f"row {row.index + 1}: `files` names {name!r}: {problem}") from problem


def _owners() -> tuple[int, ...]:
    """Whom our folders may belong to."""
    return (0, NOBODY) if os.geteuid() == 0 else (os.geteuid(),)


def _taken(run: Path) -> tuple[Path, int] | None:
    """The folder that the run has already, open; None if it has none, or if it is not ours alone."""
    try:
        root = Path(os.fsdecode((run / REMEMBERED).read_bytes()))
        folder = os.open(root, _FOLDER)
    except (OSError, ValueError):
        return None
    found = os.fstat(folder)
    if root.name.startswith(_PREFIX) and found.st_uid in _owners() and not found.st_mode & 0o077:
        return root, folder
    os.close(folder)
    return None


def _made(run: Path) -> tuple[Path, int]:
    """A new folder; the run knows its name before it is there, so that no crash leaves one that nobody knows."""
    root = Path(tempfile.gettempdir()).resolve() / f"{_PREFIX}{token_hex(8)}"
    write_whole(run / REMEMBERED, os.fsencode(root))
    os.mkdir(root, 0o700)  # fails if anything is there, a link included
    own_folder(root)
    return root, os.open(root, _FOLDER)


def _move(source: Path, target: Path) -> None:
    """Move a folder whatever is in it, also to another file system."""
    try:
        os.rename(source, target)
    except OSError:
        subprocess.run(["mv", "--", source, target], check=True, capture_output=True)
