"""Files below a root, and nothing else: no path leads out, not by `..`, not by a link, not by a race.

Each part of a path is opened by itself, in the folder opened before, and never through a symbolic link; what is opened
at last must be a regular file. A file is written beside its place and moved there, so a reader sees the old one or the
new one; it keeps its permissions. `tests/tools/test_rooted.py` and `tests/tools/test_escapes.py`
try a corpus of escapes, and swap links while files are read and written.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import BinaryIO

from stemma.tools.failures import exhaustion
from stemma.tools.protected import NOTHING, Protected, check_writable
from stemma.tools.sandbox import INSIDE
from stemma.tools.tool import ToolError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_PATH = 4096
BLOCK = 1 << 16
MAX_BYTES = 64 << 20
"""The largest file that is read; never a part of one, which somebody might write back."""


class PathEscapes(ToolError):
    """A path that leads out of the workspace, or to something that is no plain file."""


def parts_of(path: str, root: Path) -> list[str]:
    """The names on the way from the root to a file, or `PathEscapes`; absolute paths as commands see them will do."""
    if "\0" in path:
        raise PathEscapes("a path cannot hold a NUL character")
    if not _is_possible(path):
        raise PathEscapes(f"{path[:100]!r} cannot be the name of a file")
    below = _below(path, root) if path.startswith("/") else path
    parts = [part for part in below.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PathEscapes(f"{path!r} leaves the workspace; give a path without '..'")
    return parts


def _below(path: str, root: Path) -> str:
    pure = PurePosixPath(path)
    top = next((top for top in (INSIDE, root) if pure.is_relative_to(top)), None)
    if top is None:
        raise PathEscapes(f"{path!r} is outside the workspace; give a path in it, such as 'notes.txt'")
    return str(pure.relative_to(top))


def _is_possible(path: str) -> bool:
    """Whether the system could take it: we open part by part, and would make folders that nobody else can reach."""
    try:
        return len(os.fsencode(path)) < _LONGEST_PATH
    except UnicodeEncodeError:
        return False


def open_folder(root: Path, parts: list[str], *, make: bool = False) -> int:
    """A descriptor of the folder that `parts` leads to."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            made = make and _make(part, folder)
            inner = _open(part, _FOLDER, folder)
            if made:
                _give(inner, folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


@contextmanager
def folder_of(root: Path, parts: list[str], *, make: bool = False) -> Iterator[int]:
    """The folder that `parts` leads to, open while the block lasts."""
    folder = open_folder(root, parts, make=make)
    try:
        yield folder
    finally:
        os.close(folder)


def _make(name: str, folder: int) -> bool:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
        return True
    return False


def _give(made: int, folder: int) -> None:
    """What we make belongs to whom its folder belongs to, so that commands can work on it."""
    owner = os.fstat(folder)
    if os.geteuid() == 0:
        os.fchown(made, owner.st_uid, owner.st_gid)


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise ToolError(f"there is no {name!r} there") from None
    except OSError as problem:
        if exhaustion(problem) is not None:
            raise
        if problem.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathEscapes(f"{name!r} is a link, or not a folder; paths do not go through it") from None
        raise ToolError(f"{name!r} cannot be opened: {problem.strerror}") from None


@contextmanager
def reading(root: Path, path: str) -> Iterator[int]:
    """A file below `root`, open for `blocks`."""
    parts = _file_parts(path, root)
    with folder_of(root, parts[:-1]) as folder:
        file = _open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, folder)
    try:
        found = os.fstat(file)
        _check_regular(found, path)
        if found.st_size > MAX_BYTES:
            raise too_large(path)
        yield file
    finally:
        os.close(file)


def blocks(file: int, path: str, size: int = BLOCK) -> Iterator[bytes]:
    """The content of an open file, a block at a time; `ToolError` if it grows beyond the largest that is read."""
    total = 0
    while block := os.read(file, size):
        total += len(block)
        if total > MAX_BYTES:
            raise too_large(path)
        yield block


def too_large(path: str) -> ToolError:
    """What to raise for a file that is, or would be, larger than `MAX_BYTES`."""
    return ToolError(f"{path!r} is larger than {MAX_BYTES >> 20} MB; work on parts of it with a command")


@contextmanager
def replacing(root: Path, path: str, protected: Protected | None = NOTHING) -> Iterator[BinaryIO]:
    """A file to write that takes the place of the one at `path` when the block ends, and is removed if it raises.

    Folders on the way are made. A file that was there passes on its permissions and owner; a new one has those that
    the umask and the folder give. `ReadOnly` for what tools may not write; None: it is not a tool that writes.
    """
    parts = _file_parts(path, root)
    if protected is not None:
        check_writable(root, parts, protected)
    with folder_of(root, parts[:-1], make=True) as folder:
        before = _stat(parts[-1], folder)
        if before is not None:
            _check_regular(before, path)
        partial = f".{token_hex(6)}.partial"
        target = _create(partial, folder, path, private=before is not None)
        try:
            with target:
                _inherit(target.fileno(), folder, before)
                yield target
            os.replace(partial, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(partial, dir_fd=folder)
            raise


def _stat(name: str, folder: int) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def _create(name: str, folder: int, path: str, *, private: bool) -> BinaryIO:
    """A new file; private until it has the permissions of the one it replaces."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(name, flags, 0o600 if private else 0o666, dir_fd=folder), "wb")
    except OSError as problem:
        if exhaustion(problem) is not None:
            raise
        raise ToolError(f"{path!r} cannot be written: {problem.strerror}") from None


def _inherit(made: int, folder: int, before: os.stat_result | None) -> None:
    if before is None:
        _give(made, folder)
        return
    if os.geteuid() == 0:
        os.fchown(made, before.st_uid, before.st_gid)
    os.fchmod(made, before.st_mode & 0o777)  # writing takes setuid and setgid away, here as anywhere


def _file_parts(path: str, root: Path) -> list[str]:
    parts = parts_of(path, root)
    if not parts:
        raise PathEscapes(f"{path!r} is the workspace itself; name a file in it")
    return parts


def _check_regular(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PathEscapes(f"{path!r} is not a plain file")
