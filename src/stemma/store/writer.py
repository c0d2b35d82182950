"""The thread that writes: jobs come in, whole transactions go out.

Jobs that wait together are committed together (group commit), so a hundred conversations that save at the same
moment cost one sync of the disk. A job is done when its transaction is on disk, not before. If a group fails, each
of its jobs is tried again in a transaction of its own, so that one bad job never takes another with it.
Between processes a lock file decides: one writes, the others wait their turn, and a wait that is too long says who
holds the store. A file that is removed or replaced while it is written is an error (`Identity`): SQLite itself would
go on with the file that nobody can open any more. `tests/crash/test_kill.py`, `tests/store/test_processes.py` and
`tests/store/test_vanished.py` prove it.
"""

import fcntl
import os
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from stemma.errors import NotWritten, StemmaError, StoreBusy, StoreClosed, StoreDamaged, StoreVanished

T = TypeVar("T")
GROUP = 128
"""How many jobs at most share a transaction; the next ones can then be made ready while it is written."""
_HOLDER = 120
"""How many bytes of the lock file say who holds it."""


class Transaction:
    """What a job works with: the connection, and what to do once it is on disk."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.after: dict[Any, Callable[[], None]] = {}
        """By subject; run after the commit, never after a failure."""
        self.notes: dict[Any, Any] = {}
        """What earlier jobs of this transaction have written, for later ones to build on."""
        self._free: dict[str, int] = {}

    def numbers(self, table: str, count: int) -> range:
        """Ids of so many new rows of a table, after all that it has: nobody else writes meanwhile."""
        first = self._free.get(table)
        if first is None:
            first = self.db.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {table}").fetchone()[0]
        self._free[table] = first + count
        return range(first, first + count)


Job = Callable[[Transaction], Any]


class _Outcome:
    """What came of a job, for the thread that does it: a future costs more than a small save."""

    __slots__ = ("problem",)

    def __init__(self) -> None:
        self.problem: BaseException | None = None

    def set_result(self, result: Any) -> None:
        """It is on disk."""

    def set_exception(self, problem: BaseException) -> None:
        self.problem = problem


Group = Sequence[tuple[Job, "Future[Any] | _Outcome"]]
"""Jobs, and where to say what came of each."""


class Identity:
    """Which file is meant by a path: the one that was there at first, not one that takes its place.

    The write-ahead log is part of it from the first commit on: SQLite keeps it as long as a connection is open.
    """

    def __init__(self, path: str) -> None:
        self._path, self._log = path, os.path.realpath(path) + "-wal"  # SQLite follows links before it names the log
        self._first: dict[str, tuple[int, int]] = {}

    @property
    def known(self) -> bool:
        """Whether the file has been there; before that it may still have to be made."""
        return self._path in self._first

    def check(self, *, log: bool = False) -> None:
        """Raise `StoreVanished` unless the file, and the log if asked, are those of the first time this was asked."""
        for path in (self._path, self._log) if log else (self._path,):
            found, first = _number(path), self._first.get(path)
            if first is None and found is not None:
                self._first[path] = found
            elif found != first:
                how = "was removed" if found is None else "was replaced by another file"
                raise StoreVanished(f"{path} {how} while this process had it open; what was saved there is lost")

    def forget_log(self) -> None:
        """Take the next log for the first: a connection was closed, and may have removed it as the last one does."""
        self._first.pop(self._log, None)


def _number(path: str) -> tuple[int, int] | None:
    """What tells a file from every other one; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Writer:
    """A queue of jobs and the thread that does them."""

    def __init__(self, path: str, connect: Callable[[], sqlite3.Connection], wait: float, identity: Identity) -> None:
        self._path, self._connect, self._wait = path, connect, wait
        self._identity, self._wrote = identity, False
        self._jobs: queue.SimpleQueue[tuple[Job, Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._there: sqlite3.Connection | None = None
        """The connection of the thread."""
        self._here: sqlite3.Connection | None = None
        """The connection of those who write in a thread of their own."""
        self._writing_here = threading.Lock()

    def submit(self, job: Callable[[Transaction], T]) -> "Future[T]":
        """Do `job` in a transaction soon."""
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()  # a save that was asked for is made, also if nobody waits for it any more
        with self._starting:
            if self._closed:
                raise StoreClosed(f"{self._path} was closed; open it again to write")
            if self._thread is None:  # the first write, not the opening, starts the thread: readers need none
                self._thread = threading.Thread(target=self._work, name=f"stemma writer {self._path}", daemon=True)
                self._thread.start()
            self._jobs.put((job, done))
        return done

    def do_here(self, jobs: Sequence[Job]) -> None:
        """Do jobs as one transaction, or if that fails each in its own, in the thread that asks."""
        group = [(job, _Outcome()) for job in jobs]
        with self._writing_here:
            if self._closed:
                raise StoreClosed(f"{self._path} was closed; open it again to write")
            self._here = self._do_all(self._here, group)
        for _, done in group:
            if done.problem is not None:
                raise done.problem

    def close(self) -> None:
        """Finish all jobs, then stop; what was written must still be there."""
        with self._starting:
            already, self._closed = self._closed, True
            thread = self._thread
        if thread is not None and not already:
            self._jobs.put(None)
            thread.join()
        with self._writing_here:
            try:
                if self._wrote and not already:
                    self._identity.check(log=True)
            finally:
                for db in filter(None, (self._there, self._here)):
                    db.close()

    def _work(self) -> None:
        open_for_more = True
        while open_for_more:
            group, open_for_more = self._next_group()
            self._there = self._do_all(self._there, group)

    def _do_all(self, db: sqlite3.Connection | None, group: "Group") -> sqlite3.Connection | None:
        """Settle every job of a group; the connection to go on with, if it is still good."""
        try:
            if self._wrote:
                self._identity.check(log=True)
            db = db or self._connect()
        except (sqlite3.Error, OSError, StemmaError) as problem:
            for _, done in group:
                done.set_exception(translate(problem, self._path, self._wait))
            return db  # one that there was is still ours to close
        if group and not self._do(db, group):
            for single in group:
                self._do(db, [single])
        if db.in_transaction:  # it could not even be rolled back
            db.close()
            self._identity.forget_log()
            return None
        return db

    def _next_group(self) -> tuple[list[tuple[Job, "Future[Any]"]], bool]:
        """All that waits, up to GROUP, and whether more may come."""
        group: list[tuple[Job, Future[Any]]] = []
        while len(group) < GROUP and (not group or not self._jobs.empty()):
            entry = self._jobs.get()
            if entry is None:
                return group, False
            group.append(entry)
        return group, True

    def _do(self, db: sqlite3.Connection, group: "Group") -> bool:
        """Do a group as one transaction; True if every job of it was settled."""
        transaction = Transaction(db)
        try:
            with self.turn():
                db.execute("BEGIN IMMEDIATE")
                results = [job(transaction) for job, _ in group]
                db.execute("COMMIT")
            self._wrote = True
            self._identity.check(log=True)
        except BaseException as problem:  # noqa: BLE001  it rises where the result is asked for
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            if len(group) > 1 and not isinstance(problem, StoreBusy | StoreVanished):
                return False
            for _, done in group:
                done.set_exception(translate(problem, self._path, self._wait))
            return True
        for act in transaction.after.values():
            act()
        for (_, done), result in zip(group, results, strict=True):
            done.set_result(result)
        return True

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the store's lock file, which says who holds it."""
        lock = os.open(self._path + "-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            deadline, pause = time.monotonic() + self._wait, 0.0005
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise StoreBusy(busy(self._path, os.pread(lock, _HOLDER, 0).strip(), self._wait))
                time.sleep(pause)
                pause = min(pause * 1.5, 0.02)
            os.pwrite(lock, _holder(), 0)
            yield
        finally:
            os.close(lock)


def _holder() -> bytes:
    """Who we are; always of one length, because to cut a file costs more than all the rest of taking a turn."""
    name = os.path.basename(sys.argv[0]) or "python"
    return f"process {os.getpid()} ({name})".encode()[:_HOLDER].ljust(_HOLDER)


def busy(path: str, holder: bytes, waited: float) -> str:
    """The sentence for `StoreBusy`."""
    who = holder.decode("utf-8", "replace") or "another process"
    return f"{path} is being written by {who}, still after {waited:g} s; wait for it or end it, then try again"


def translate(problem: BaseException, path: str, waited: float) -> BaseException:
    """The error a user understands for one of SQLite's."""
    if isinstance(problem, sqlite3.OperationalError) and "lock" in str(problem):
        return _caused(StoreBusy(busy(path, b"", waited)), problem)
    if isinstance(problem, sqlite3.OperationalError | OSError):
        return _caused(
            NotWritten(f"{path}: {problem}; nothing of this save was recorded, what was there is intact"), problem
        )
    if isinstance(problem, sqlite3.DatabaseError):
        return _caused(StoreDamaged(f"{path}: {problem}; run `stemma verify {path}`"), problem)
    return problem


def _caused(error: StemmaError, cause: BaseException) -> StemmaError:
    error.__cause__ = cause
    return error


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
