"""Files below a root, and nothing else: no path leads out, not by `..`, not by a link, not by a race.

Each part of a path is opened by itself, in the folder opened before, and never through a symbolic link; what is opened
at last must be a regular file. A file is written beside its place and moved there, so a reader sees the old one or the
new one. `tests/tools/test_rooted.py` and `tests/tools/test_escapes.py`
try a corpus of escapes, and swap links while files are read and written.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex

from stemma.tools.failures import exhaustion
from stemma.tools.protected import NOTHING, Protected, check_writable
from stemma.tools.sandbox import INSIDE
from stemma.tools.tool import ToolError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_PATH = 4096
_BLOCK = 1 << 16
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


@contextmanager
def folder_of(root: Path, parts: list[str], *, make: bool = False) -> Iterator[int]:
    """The folder that `parts` leads to, open."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            made = make and _make(part, folder)
            inner = _open(part, _FOLDER, folder)
            if made:
                _give(inner, folder)
            os.close(folder)
            folder = inner
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


def _open(name: str, flags: int, folder: int, mode: int = 0o644) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=folder)
    except FileNotFoundError:
        raise ToolError(f"there is no {name!r} there") from None
    except OSError as problem:
        if exhaustion(problem) is not None:
            raise
        if problem.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathEscapes(f"{name!r} is a link, or not a folder; paths do not go through it") from None
        raise ToolError(f"{name!r} cannot be opened: {problem.strerror}") from None


def read_bytes(root: Path, path: str) -> bytes:
    """The content of a file below `root`."""
    parts = _file_parts(path, root)
    with folder_of(root, parts[:-1]) as folder:
        file = _open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, folder)
    try:
        _check_regular(os.fstat(file), path)
        content = b"".join(_blocks(file, MAX_BYTES + 1))
    finally:
        os.close(file)
    if len(content) > MAX_BYTES:
        raise ToolError(f"{path!r} is larger than {MAX_BYTES >> 20} MB; look at parts of it with a command")
    return content


def _blocks(file: int, most: int) -> Iterator[bytes]:
    while most > 0 and (block := os.read(file, min(most, _BLOCK))):
        most -= len(block)
        yield block


def write_bytes(root: Path, path: str, content: bytes, protected: Protected = NOTHING) -> None:
    """Put `content` into a file below `root`, making folders on the way; not into what tools may not write."""
    parts = _file_parts(path, root)
    check_writable(root, parts, protected)
    with folder_of(root, parts[:-1], make=True) as folder:
        with suppress(FileNotFoundError):
            _check_regular(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False), path)
        partial = f".{token_hex(6)}.partial"
        file = _open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, folder)
        with os.fdopen(file, "wb") as target:
            _give(file, folder)
            target.write(content)
        os.replace(partial, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)


def _file_parts(path: str, root: Path) -> list[str]:
    parts = parts_of(path, root)
    if not parts:
        raise PathEscapes(f"{path!r} is the workspace itself; name a file in it")
    return parts


def _check_regular(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PathEscapes(f"{path!r} is not a plain file")


def _is_regular(name: str, folder: int) -> bool:
    with suppress(FileNotFoundError):  # gone since it was listed
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def walk(root: Path, path: str) -> Iterator[str]:
    """The paths of all plain files below a folder, links not followed, in order of name."""
    prefix = PurePosixPath(*parts_of(path, root))
    with folder_of(root, list(prefix.parts)) as folder:
        for here, folders, files, inner in os.fwalk(dir_fd=folder, follow_symlinks=False):
            folders.sort()
            for name in sorted(files):
                if _is_regular(name, inner):
                    yield str(prefix / PurePosixPath(here).relative_to(".") / name)
