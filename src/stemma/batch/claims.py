"""Who works on what: several processes may run one batch, and none takes a task that another has.

A claim is a lock on one byte of a file, at a place made of the task's name. The system lets go of it when the process
ends, however it ends. `tests/batch/test_claims.py` proves it with real processes.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path


class Claims:
    """The claims of this process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._held: set[str] = set()

    def take(self, name: str) -> bool:
        """Whether the task is now ours; False if another process, or this one, has it."""
        if name in self._held:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(name))
        except BlockingIOError:
            return False
        self._held.add(name)
        return True

    def release(self, name: str) -> None:
        """Let go of a task."""
        self._held.discard(name)
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _byte(name))

    def close(self) -> None:
        """Let go of all."""
        os.close(self._file)


def _byte(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:7], "big")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Have a folder's files to oneself: another process that wants the same waits."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether a lock file is ours while the block runs; False if another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
