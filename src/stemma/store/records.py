"""Rows as they are put down: runs, toolsets and graphs, and the seals that tell changed ones.

Who writes has the store to himself until his transaction ends, so he may give out numbers and look before he writes.
`tests/store/test_verify.py` changes every cell, and each change is found.
"""

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from stemma.core.fingerprint import START
from stemma.core.ids import Id, digest
from stemma.store.lines import EMPTY, StoredLine
from stemma.store.writer import Transaction


class Home(msgspec.Struct, frozen=True):
    """A row of `graph` that a handle writes to, and how much of the handle it has."""

    row: int
    line: StoredLine = EMPTY
    """As we last wrote or read it."""
    versions: int = 0
    calls: int = 0
    links: int = 0
    versions_hash: Id = START
    calls_hash: Id = START
    links_hash: Id = START
    seal: Id = b""
    """As we last wrote or read it; empty: not known."""


def insert_graph(db: sqlite3.Connection, values: tuple[Any, ...]) -> None:
    """A row of `graph`, all columns."""
    db.execute("INSERT INTO graph VALUES (?, ?, ?, ?, ?, ?)", values)


def insert_rows(db: sqlite3.Connection, rows: Mapping[str, list[tuple[Any, ...]]]) -> None:
    """Rows by their tables, all columns of each, in an order in which none refers to a later one."""
    for table, values in rows.items():
        if values:
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)


def write_toolset(transaction: Transaction, body: bytes) -> int:
    """The row of a set of tools."""
    row: int | None = transaction.notes.get(body)
    if row is None:
        name = digest("toolset", body)
        transaction.db.execute("INSERT OR IGNORE INTO toolset (hash, body) VALUES (?, ?)", (name, body))
        row = transaction.db.execute("SELECT id FROM toolset WHERE hash = ?", (name,)).fetchone()[0]
        transaction.notes[body] = row
    assert row is not None
    return row


def run_of(transaction: Transaction, name: str) -> int:
    """The row of a run, made if it is new."""
    row: int | None = transaction.notes.get(("run", name))
    if row is None:
        row = transaction.notes["run", name] = write_run(transaction.db, name, None)
    return row


def seal_graph(name: str | None, run: int | None, metadata: bytes, tip: Id, home: Home) -> Id:
    """The hash over all that belongs to a graph."""
    counts = f"{run} {home.versions} {home.calls} {home.links}".encode()
    hashes = (home.versions_hash, home.calls_hash, home.links_hash)
    return digest("sealed graph", b"" if name is None else b"=" + name.encode(), metadata, tip, counts, *hashes)


def seal_run(name: str, metadata: bytes) -> Id:
    """The hash over a run."""
    return digest("sealed run", name.encode(), metadata)


def write_run(db: sqlite3.Connection, name: str, metadata: bytes | None) -> int:
    """The row of a run, made if it is new; its metadata stays as it was when not given."""
    held = db.execute("SELECT id FROM run WHERE name = ?", (name,)).fetchone()
    if held is None:
        body = metadata or b"{}"
        values = (name, body, seal_run(name, body))
        row = db.execute("INSERT INTO run (name, metadata, seal) VALUES (?, ?, ?)", values).lastrowid
        assert row is not None
        return row
    if metadata is not None:
        seal = seal_run(name, metadata)
        db.execute("UPDATE run SET metadata = ?, seal = ? WHERE id = ?", (metadata, seal, held[0]))
    number: int = held[0]
    return number
