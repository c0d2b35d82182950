"""A store in one SQLite file: written by one thread, read by any number of threads and processes.

What `save` has returned for survives `kill -9` and, if the disk honours a sync, a power cut: the file is in WAL mode
with synchronous=FULL. A reader sees a graph as it was after some whole save, never half a turn.
`tests/crash/` and `tests/store/` prove it; `schema.sql` says what every column means.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from stemma.core.canonical import checked, decode
from stemma.core.fingerprint import fingerprint
from stemma.core.fresh import Fresh
from stemma.core.graph import MessageGraph
from stemma.core.names import check_name
from stemma.core.verify import Finding
from stemma.errors import (
    NameTaken,
    NotFound,
    StemmaError,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreMissing,
    StoreTooNew,
    StoreVanished,
)
from stemma.store.checking import check
from stemma.store.finding import find
from stemma.store.fresh import write_fresh
from stemma.store.lines import UNREADABLE
from stemma.store.loading import GraphReader
from stemma.store.memory import name_taken
from stemma.store.merge import merge
from stemma.store.protocol import Found, GraphInfo, MergeReport, Prefer, Prepared, RunInfo, Store
from stemma.store.records import write_run
from stemma.store.saving import GraphWriter, Snapshot, adopt, known_mark, snapshot_fingerprint, take_all
from stemma.store.writer import Identity, Transaction, Writer, busy

SCHEMA_VERSION = 1
_COUNTED = ("graph", "line", "message", "call")
APPLICATION_ID = int.from_bytes(b"stem", "big")
_WAIT = 10.0
"""How many seconds a reader waits; it need not wait for a writer, only for a store that is made or recovered."""
_MOST_IDLE = 4
"""How many connections are kept for the next readers."""


class SQLiteStore:
    """Named graphs in a file."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, wait: float = 30.0) -> None:
        self.path = os.path.abspath(path)  # connections are made as they are needed, wherever one has gone by then
        if not create and not os.path.exists(self.path):
            raise StoreMissing(f"there is no store at {self.path}; check the path, or save a graph there first")
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise StoreError(f"cannot make the folder of {self.path}: {problem}") from problem
        self._token = object()
        self._closed = False
        self._process = os.getpid()
        self._idle: list[sqlite3.Connection] = []
        """Connections to read with that nobody uses now. They are the store's, not a thread's: threads end."""
        self._reading_now = 0
        self._done_reading = threading.Condition()
        self._identity = Identity(self.path)
        self._writer = Writer(self.path, lambda: self._connect(wait), wait, self._identity)
        try:
            self._check_file(create)
            self._identity.check()
        except BaseException:
            self._writer.close()
            raise

    # ── saving ───────────────────────────────────────────────────────────────────────────────────────────────

    def save(
        self, graph: MessageGraph, name: str, *, run: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self.save_soon(graph, name, run=run, metadata=metadata).result()

    def save_soon(
        self, graph: MessageGraph, name: str, *, run: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> "Future[None]":
        return self._writer.submit(self.prepare(graph, name, run=run, metadata=metadata))

    def prepare(
        self,
        graph: MessageGraph | Fresh,
        name: str,
        *,
        run: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Prepared:
        self._check_open()
        check_name("graph's name", name)
        if run is not None:
            check_name("run's name", run)
        about = None if metadata is None else checked(dict(metadata), "metadata")
        if isinstance(graph, Fresh):
            return self._prepare_fresh(graph, name, run, about)
        snapshots = take_all(graph, self._token, name)

        def job(transaction: Transaction) -> None:
            self._adopt(transaction, snapshots, name)
            self._write(transaction, snapshots, name, run, about)

        return job

    def _prepare_fresh(self, fresh: Fresh, name: str, run: str | None, about: bytes | None) -> Prepared:
        def job(transaction: Transaction) -> None:
            if transaction.db.execute("SELECT 1 FROM graph WHERE name = ?", (name,)).fetchone():
                self.prepare(fresh.graph(), name, run=run, metadata=decode(about or b"{}"))(transaction)
            else:
                write_fresh(transaction, fresh, name, run, about or b"{}")

        return job

    def write(self, prepared: Sequence[Prepared]) -> None:
        self._check_open()
        self._writer.do_here(prepared)

    def _write(
        self, transaction: Transaction, snapshots: list[Snapshot], name: str, run: str | None, about: bytes | None
    ) -> None:
        """Write a graph, the last of `snapshots`, after the subagents it contains."""
        rows: dict[int, int] = {}
        for snapshot in snapshots[:-1]:
            child = GraphWriter(transaction, self._token, snapshot, (name, True), rows)
            rows[id(snapshot.graph)] = child.write(None, None)
        GraphWriter(transaction, self._token, snapshots[-1], (name, False), rows).write(run, about)

    def _adopt(self, transaction: Transaction, snapshots: list[Snapshot], name: str) -> None:
        """A handle that was never saved under a name that exists may go on there if it says exactly the same."""
        mark = known_mark(transaction, self._token, snapshots[-1].graph)
        if mark and (name, False) in mark.homes:
            return
        held = transaction.db.execute("SELECT id FROM graph WHERE name = ?", (name,)).fetchone()
        if held is None:
            return
        loaded = GraphReader(transaction.db, self._token).read(held[0])
        same = fingerprint(loaded) == snapshot_fingerprint(snapshots)
        if not (same and adopt(transaction, self._token, snapshots, loaded)):
            raise NameTaken(name_taken(name))

    def save_run(self, name: str, metadata: Mapping[str, Any]) -> None:
        self._check_open()
        check_name("run's name", name)
        about = checked(dict(metadata), "metadata")
        self._writer.submit(lambda transaction: write_run(transaction.db, name, about)).result()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, name: str) -> MessageGraph:
        with self._reading() as db:
            held = db.execute("SELECT id FROM graph WHERE name = ?", (name,)).fetchone()
            if held is None:
                raise NotFound(f"there is no graph {name!r} in {self.path}; `stemma log` lists them")
            return GraphReader(db, self._token).read(held[0])

    def names(self, run: str | None = None) -> list[str]:
        with self._reading() as db:
            question = "SELECT g.name FROM graph g LEFT JOIN run ON run.id = g.run WHERE g.name IS NOT NULL"
            found = db.execute(f"{question} AND (:run IS NULL OR run.name = :run) ORDER BY g.name", {"run": run})
            return [name for (name,) in found]

    def metadata(self, name: str) -> dict[str, Any]:
        with self._reading() as db:
            held = db.execute("SELECT metadata FROM graph WHERE name = ?", (name,)).fetchone()
            if held is None:
                raise NotFound(f"there is no graph {name!r} in {self.path}; `stemma log` lists them")
            about: dict[str, Any] = decode(held[0])
            return about

    def each_metadata(self, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
        last = ""
        while found := self._metadata_after(run, last):
            yield from ((name, decode(about)) for name, about in found)
            last = found[-1][0]

    def _metadata_after(self, run: str, name: str) -> list[tuple[str, bytes]]:
        with self._reading() as db:
            question = "SELECT g.name, g.metadata FROM graph g JOIN run ON run.id = g.run"
            found = db.execute(f"{question} WHERE run.name = ? AND g.name > ? ORDER BY g.name LIMIT 500", (run, name))
            return found.fetchall()

    def graphs(self, run: str | None = None) -> list[GraphInfo]:
        with self._reading() as db:
            found = db.execute(
                "SELECT g.name, run.name, CASE WHEN line.length THEN hex(line.tip) END, coalesce(line.length, 0),"
                " (SELECT count(*) FROM version WHERE graph = g.id),"
                " (SELECT count(*) FROM placed WHERE graph = g.id), g.metadata"
                " FROM graph g LEFT JOIN line ON line.id = g.line LEFT JOIN run ON run.id = g.run"
                " WHERE g.name IS NOT NULL AND (:run IS NULL OR run.name = :run) ORDER BY g.name",
                {"run": run},
            )
            return [
                GraphInfo(name, of, tip and tip.lower(), length, versions, calls, decode(about))
                for name, of, tip, length, versions, calls, about in found
            ]

    def runs(self) -> list[RunInfo]:
        with self._reading() as db:
            found = db.execute(
                "SELECT name, (SELECT count(*) FROM graph WHERE run = run.id AND name IS NOT NULL), metadata"
                " FROM run ORDER BY name"
            )
            return [RunInfo(name, graphs, decode(about)) for name, graphs, about in found]

    def find(self, prefix: str) -> list[Found]:
        with self._reading() as db:
            return find(db, prefix)

    def merge(self, other: Store, prefer: Prefer | None = None) -> MergeReport:
        return merge(self, other, prefer)

    def verify(self) -> list[Finding]:
        with self._reading() as db:
            return check(db)

    def shared_events(self) -> set[object]:
        several = "SELECT call FROM placed GROUP BY call HAVING count(*) > 1"
        with self._reading() as db:
            return {event for (event,) in db.execute(f"SELECT event FROM call WHERE id IN ({several})")}

    def counts(self) -> dict[str, int]:
        question = "SELECT " + ", ".join(f"(SELECT count(*) FROM {table})" for table in _COUNTED)
        with self._reading() as db:
            found = db.execute(question).fetchone()
        return {f"{table}s": number for table, number in zip(_COUNTED, found, strict=True)}

    # ── the file ─────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        if self._process != os.getpid():
            self._closed = True  # a fork has neither the thread nor the locks of its parent
            return
        with self._done_reading:
            self._closed = True
            self._done_reading.wait_for(lambda: not self._reading_now)  # closing a connection in use is a crash
        try:
            self._writer.close()
        finally:
            while self._idle:
                self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.close()
        except StoreVanished:
            if exc[0] is None:  # else that is what rises, and says more
                raise

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.path} was closed; open it again")
        if self._process != os.getpid():
            raise StoreClosed(f"{self.path} was opened by process {self._process}; open it again in this one")

    def _connect(self, wait: float = _WAIT) -> sqlite3.Connection:
        if self._identity.known:
            self._identity.check()  # SQLite would make an empty file in its place
        db = sqlite3.connect(self.path, isolation_level=None, timeout=wait, check_same_thread=False)
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA cache_size = -65536")
        except (sqlite3.Error, UnicodeError):  # the latter where SQLite's complaint quotes damage
            db.close()
            raise
        return db

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own, seeing one moment of the file."""
        with self._done_reading:
            self._check_open()
            self._reading_now += 1
            db = self._idle.pop() if self._idle else None
        try:
            self._identity.check()
            db = db or self._reader()
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except StemmaError:
            raise
        except sqlite3.OperationalError as problem:
            raise self._cannot("read", problem) from problem
        except (sqlite3.DatabaseError, *UNREADABLE) as problem:
            raise StoreDamaged(f"{self.path}: {problem}; `stemma verify` names what is wrong") from problem
        finally:
            with self._done_reading:
                if db is not None and len(self._idle) < _MOST_IDLE:
                    self._idle.append(db)
                elif db is not None:
                    db.close()
                self._reading_now -= 1
                self._done_reading.notify_all()

    def _reader(self) -> sqlite3.Connection:
        """A new connection to read with."""
        db = self._connect()
        try:
            db.execute("PRAGMA query_only = ON")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _cannot(self, do: str, problem: sqlite3.OperationalError | OSError) -> StoreError:
        if "lock" in str(problem):
            return StoreBusy(busy(self.path, b"", _WAIT))
        return StoreError(f"cannot {do} {self.path}: {problem}")

    def _check_file(self, create: bool) -> None:
        """Make the file if it is new; refuse it if it is not ours or from the future."""
        try:
            with closing(self._connect()) as db:
                db.execute("BEGIN")  # one moment of the file, which another process may be making just now
                asked = ("PRAGMA user_version", "PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
                version, application, tables = (db.execute(question).fetchone()[0] for question in asked)
                db.execute("ROLLBACK")
                if (version, application, tables) == (0, 0, 0) and create:
                    self._create(db)
                elif application != APPLICATION_ID:
                    raise StoreDamaged(f"{self.path} is not a store of stemma; choose another path")
                elif version > SCHEMA_VERSION:
                    raise StoreTooNew(
                        f"{self.path} has format {version}, this stemma reads up to {SCHEMA_VERSION}; upgrade stemma"
                    )
        except (sqlite3.OperationalError, OSError) as problem:
            raise self._cannot("open", problem) from problem
        except (sqlite3.DatabaseError, UnicodeError) as problem:
            raise StoreDamaged(f"{self.path} is not a store of stemma: {problem}") from problem

    def _create(self, db: sqlite3.Connection) -> None:
        """Lay out the tables; two processes may try at once, and one of them finds it done."""
        with self._writer.turn():  # SQLite waits for nobody here
            db.execute("PRAGMA journal_mode = WAL")
        schema = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
        self._writer.submit(lambda transaction: _lay_out(transaction.db, schema)).result()


def _lay_out(db: sqlite3.Connection, schema: str) -> None:
    if db.execute("PRAGMA user_version").fetchone()[0] != 0:
        return
    statement = ""
    for line in schema.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
