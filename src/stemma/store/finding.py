"""Where an id stands: from a prefix of it to the nodes and messages it may mean, without reading bodies."""

import sqlite3
from collections.abc import Iterator

from stemma.core.ids import ROOT, Id, chain
from stemma.store.lines import read_line
from stemma.store.protocol import Found


def find(db: sqlite3.Connection, prefix: str) -> list[Found]:
    """Every node and message whose id begins with `prefix`, each with one place where it stands."""
    if not prefix or set(prefix) - set("0123456789abcdef"):
        return []
    found: dict[tuple[str, Id], Found] = {}
    hashes: dict[int, Id] = dict(db.execute("SELECT id, hash FROM message"))
    for name, path, version, numbers in _lines(db, max(hashes, default=0)):
        messages = [hashes[n] for n in numbers]
        for i, (node, message) in enumerate(zip(chain(ROOT, messages), messages, strict=True)):
            if node.hex().startswith(prefix):
                found.setdefault(("node", node), Found("node", node.hex(), name, path, version, i))
            if message.hex().startswith(prefix):
                found.setdefault(("message", message), Found("message", message.hex(), name, path, version, i))
    return list(found.values())


def _lines(db: sqlite3.Connection, newest: int) -> Iterator[tuple[str, tuple[int, ...], int | None, list[int]]]:
    """The message numbers of every line of every graph that a name leads to."""
    near: dict[int, list[int]] = {}
    for name, path, graph in _named_paths(db):
        rows = db.execute(
            "SELECT NULL, line FROM graph WHERE id = :graph AND line IS NOT NULL"
            " UNION ALL SELECT number, line FROM version WHERE graph = :graph",
            {"graph": graph},
        ).fetchall()
        for version, line in rows:
            near = {line: read_line(db, line, near, newest)}
            yield name, path, version, near[line]


def _named_paths(db: sqlite3.Connection) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Each graph with a name, and each below it, with the numbers of the links that lead there."""
    for name, top in db.execute("SELECT name, id FROM graph WHERE name IS NOT NULL ORDER BY name").fetchall():
        seen: set[int] = {top}
        waiting: list[tuple[tuple[int, ...], int]] = [((), top)]
        while waiting:
            path, graph = waiting.pop()
            yield name, path, graph
            for number, child in db.execute("SELECT number, child FROM contains WHERE graph = ?", (graph,)).fetchall():
                if child not in seen:
                    seen.add(child)
                    waiting.append(((*path, number), child))
