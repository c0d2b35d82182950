"""What tools may not write, wherever the workspace is.

By name, in every workspace: `.stemma`, whose settings the next `stemma` reads, and `.git/hooks` and `.git/config`,
which name programs that the next `git` starts. By place: the store, the run's folder and the user's own files of
stemma, where they happen to lie inside the workspace. The file tools refuse to write there (`check_writable`). In a
sandbox they are mounted read-only (`mounts`), and so that they cannot be moved away, every folder on the way to them
is a mount of its own. Without a sandbox (`none`) nothing keeps a command from them.
`tests/tools/test_protected.py` proves it.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from stemma.errors import HarnessFailed
from stemma.tools.tool import ToolError

_SETTINGS, _GIT, _OF_GIT = ".stemma", ".git", ("hooks", "config")


class ReadOnly(ToolError):
    """A path that tools may not write."""


class CannotProtect(HarnessFailed):
    """A workspace in which something that tools may not write cannot be kept from them."""

    retryable = False


class Protected(msgspec.Struct, frozen=True):
    """Files and folders that tools may read, where they see them, but not write."""

    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()

    def resolved(self) -> "Protected":
        """The same, without links on the way."""
        return Protected(
            *(tuple(Path(os.path.realpath(path)) for path in paths) for paths in (self.files, self.folders))
        )


NOTHING = Protected()
"""Nothing beside what is never written."""


def store_files(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The files of a store: the database, its write-ahead log and index, its rollback journal and its lock.

    A store has no rollback journal, but SQLite looks for one first and plays back into the database whatever is there.
    """
    real = os.path.realpath(path)  # SQLite follows links before it names the others
    names = [real, real + "-wal", real + "-shm", real + "-journal", os.path.abspath(path) + "-lock"]
    return tuple(map(Path, dict.fromkeys(names)))


def check_writable(root: Path, parts: list[str], protected: Protected) -> None:
    """Raise `ReadOnly` if tools may not write the file that is reached from `root` by `parts`."""
    names = [part.casefold() for part in parts]  # some file systems do not tell `.Git` from `.git`
    if _SETTINGS in names:
        raise ReadOnly(f"{'/'.join(parts)!r} is not written: {_SETTINGS} holds settings that only the user changes")
    if any(name == _GIT and after in _OF_GIT for name, after in pairwise(names)):
        raise ReadOnly(f"{'/'.join(parts)!r} is not written: it can name programs that git starts")
    if names and names[-1] == _GIT:
        raise ReadOnly(f"{'/'.join(parts)!r} is not written: it says where git finds its settings")
    path = root.joinpath(*parts)
    for kept in _inside(root, protected):
        if path == kept or kept in path.parents:
            raise ReadOnly(f"{'/'.join(parts)!r} is not written: it belongs to stemma itself")


class Mount(NamedTuple):
    """A part of the workspace that is mounted by itself."""

    inner: PurePosixPath
    """Its path below the workspace."""
    writable: bool


def mounts(root: Path, protected: Protected, *, lasting: bool) -> list[Mount]:
    """What to mount over the workspace, outer folders first, so that what is protected cannot be written or moved.

    What is not there yet and must not be made by a command is made here, empty: there must be something to mount over.
    `lasting` says whether the folder stays when the conversation ends: else nobody reads settings there later.
    """
    inside = [path for path in _inside(root, protected) if _made(path, root, folder=path in protected.folders)]
    kept = [*_by_name(root, lasting=lasting), *(PurePosixPath(path.relative_to(root)) for path in inside)]
    on_the_way = {PurePosixPath(*path.parts[:n]) for path in kept for n in range(1, len(path.parts))}
    read_only = {path for path in kept if not any(above in kept for above in path.parents)}
    writable = {path for path in on_the_way if not any(above in read_only for above in (path, *path.parents))}
    found = [*(Mount(path, writable=False) for path in read_only), *(Mount(path, writable=True) for path in writable)]
    return sorted(found, key=lambda mount: (len(mount.inner.parts), mount.inner))


def _by_name(root: Path, *, lasting: bool) -> Iterator[PurePosixPath]:
    settings, git = root / _SETTINGS, root / _GIT
    for path in (settings, git, *(git / name for name in _OF_GIT)):
        if path.is_symlink():
            raise CannotProtect(f"{path} is a symbolic link, which cannot be protected; put what it points to there")
    if settings.exists() or (lasting and _made(settings, root, folder=True)):
        yield PurePosixPath(_SETTINGS)
    if git.is_file():  # of a worktree or submodule: it says where the repository is
        yield PurePosixPath(_GIT)
    elif git.is_dir():
        for name, folder in zip(_OF_GIT, (True, False), strict=True):
            if _made(git / name, root, folder=folder):
                yield PurePosixPath(_GIT, name)


def _inside(root: Path, protected: Protected) -> Iterator[Path]:
    """Those that are in the workspace; one that holds the workspace itself is not seen by tools anyway."""
    for path in (*protected.files, *protected.folders):
        if path != root and path.is_relative_to(root):
            yield path


def _made(path: Path, root: Path, *, folder: bool) -> bool:
    """Whether it is there, or could be made, empty; where we may not make it, commands may not either."""
    if path.exists():
        return True
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if folder else path.touch()
        if os.geteuid() == 0:
            owner = root.stat()
            os.chown(path, owner.st_uid, owner.st_gid)
    except OSError:
        return False
    return True
