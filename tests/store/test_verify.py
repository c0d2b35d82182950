"""`verify` finds every change of what a store says, names it, and never trips over it.

A sample store is damaged from beside, cell by cell, row by row and byte by byte. What is not found is listed here, and
changes nothing of what the store says.

Not covered: the whole row of a run without graphs, or of a graph that was always empty or whose only line another graph
has too, can be taken away unnoticed, because nothing else in the file speaks of it.
"""

import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from stemma import MessageGraph
from stemma.core.canonical import canonical, decode
from stemma.core.ids import ROOT, chain
from stemma.errors import StemmaError
from stemma.store import MemoryStore, SQLiteStore
from stemma.store.lines import write_runs
from store.rows import TABLES, ask
from store.sample import at_hand, contents, fill, user

REDUNDANT = {("line", "base"), ("call", "prompt_base")}
"""How a line or a prompt is laid out: of two bases that agree where it needs them, either is as good."""

UNNOTICED_NUMBERS = {("graph", "id"), ("run", "id")}
"""Inner numbers that nothing refers to may be others: a graph without versions, calls and subagents has such a one."""

Row = dict[str, Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store, closed."""
    path = tmp_path_factory.mktemp("sample") / "store.db"
    with SQLiteStore(path) as store:
        fill(store)
        assert store.verify() == []
    return path


@pytest.fixture
def path(original: Path) -> Iterator[Path]:
    """A copy of it that may be damaged."""
    with tempfile.TemporaryDirectory(dir=at_hand(original.parent)) as folder:
        yield Path(shutil.copy(original, folder))


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    with SQLiteStore(path, create=False) as opened:
        yield opened


class Damage:
    """A connection beside the store's own that changes rows behind its back, and can put them back."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.row_factory = sqlite3.Row
        self.db.execute("PRAGMA synchronous = OFF")

    def rows(self, table: str) -> list[Row]:
        return [dict(row) for row in self.db.execute(f"SELECT * FROM {table}")]

    def columns(self, table: str) -> list[sqlite3.Row]:
        return self.db.execute(f"PRAGMA table_info({table})").fetchall()

    def insert(self, table: str, row: Row) -> None:
        holes = ", ".join("?" * len(row))
        self.db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({holes})", list(row.values()))

    def delete(self, table: str, row: Row) -> None:
        keys = [column["name"] for column in self.columns(table) if column["pk"]]
        where = " AND ".join(f"{key} = ?" for key in keys)
        self.db.execute(f"DELETE FROM {table} WHERE {where}", [row[key] for key in keys])

    def replace(self, table: str, old: Row, new: Row) -> bool:
        """Put one row in the place of another; False if the table cannot hold such a row."""
        self.db.execute("BEGIN")
        try:
            self.delete(table, old)
            self.insert(table, new)
        except sqlite3.IntegrityError:
            self.db.execute("ROLLBACK")
            return False
        self.db.execute("COMMIT")
        return True


@pytest.fixture
def damage(path: Path, store: SQLiteStore) -> Iterator[Damage]:
    beside = Damage(path)
    with closing(beside.db):
        yield beside


def variants(value: Any, nullable: bool) -> Iterator[Any]:
    """A cell, changed by a byte, by one, or by being or not being there."""
    if isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, bytes):
        for at in sorted({0, len(value) // 2, len(value) - 1} if value else ()):
            yield value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
            yield value[:at] + bytes([value[at] ^ 0x80]) + value[at + 1 :]
        yield from (value + b"\x00", value[:-1]) if value else ()
    elif isinstance(value, str):
        yield from (chr(ord(value[0]) ^ 1) + value[1:], value[:-1] + "~", value + " ")
    else:
        yield from (0, 1, b"", b"\x00", "", "x")
    if nullable and value is not None:
        yield None


def flips(damage: Damage, table: str) -> Iterator[tuple[str, Row, Row]]:
    """Every cell of a table, changed in each way: the column, the row and the changed row."""
    for column in damage.columns(table):
        name, nullable = column["name"], not column["notnull"] and not column["pk"]
        for row in damage.rows(table):
            for value in variants(row[name], nullable):
                if value != row[name] or type(value) is not type(row[name]):
                    yield name, row, row | {name: value}


@pytest.mark.parametrize("table", TABLES)
def test_every_changed_cell_is_found(store, damage, table):
    truth = contents(store)
    for column, old, new in list(flips(damage, table)):
        if not damage.replace(table, old, new):
            continue
        change = f"{table}.{column}: {old[column]!r} → {new[column]!r} in {old}"
        if not store.verify():
            assert (table, column) in REDUNDANT | UNNOTICED_NUMBERS, change
            assert contents(store) == truth, change
        assert damage.replace(table, new, old)
    assert store.verify() == []
    assert contents(store) == truth


def test_that_is_many_changes(damage):
    assert sum(len(list(flips(damage, table))) for table in TABLES) >= 1500


@pytest.mark.parametrize("table", TABLES)
def test_every_lost_row_is_found(store, damage, table):
    for row in damage.rows(table):
        damage.delete(table, row)
        assert store.verify(), f"{table}: {row}"
        damage.insert(table, row)
    assert store.verify() == []


def test_a_damaged_store_answers_with_a_typed_error_or_what_it_was_given(store, damage):
    """Whatever a cell holds, loading gives a graph or a `StemmaError`, never something of SQLite's or of Python's."""
    for table in TABLES:
        for _, old, new in list(flips(damage, table))[::7]:
            if damage.replace(table, old, new):
                with suppress(StemmaError):
                    contents(store)
                assert damage.replace(table, new, old)


# ── every kind of finding, by name ───────────────────────────────────────────────────────────────────────────────


def found(store: SQLiteStore) -> set[tuple[str, str]]:
    return {(finding.kind, finding.subject) for finding in store.verify()}


def row_of(path: Path, text: str) -> tuple[int, str]:
    """The row and the id of the message that says `text`."""
    for row, name, body in ask(path, "SELECT id, hash, body FROM message"):
        if text in str(decode(body)):
            return row, name.hex()
    raise LookupError(text)


def test_a_body_that_says_something_else_is_altered(store, damage, path):
    row, name = row_of(path, "message 7")
    damage.db.execute("UPDATE message SET body = ? WHERE id = ?", (canonical(user("message 8")), row))
    assert ("altered", f"message {name}") in found(store)


def test_a_body_with_its_keys_in_another_order_is_altered(store, damage, path):
    """It says the same, but not as it was written."""
    row, name = row_of(path, "message 7")
    damage.db.execute("UPDATE message SET body = ? WHERE id = ?", (b'{"content":"message 7","role":"user"}', row))
    assert found(store) == set()
    damage.db.execute("UPDATE message SET body = ? WHERE id = ?", (b'{"role":"user", "content":"message 7"}', row))
    assert found(store) == {("altered", f"message {name}")}


def test_a_body_that_cannot_be_read_is_damaged(store, damage, path):
    row, name = row_of(path, "message 7")
    for body in (b"", b"{", b'{"role":"user"', b"\xff", b"[" * 100_000, b'"text"', b"null"):
        damage.db.execute("UPDATE message SET body = ? WHERE id = ?", (body, row))
        assert {(kind, subject) for kind, subject in found(store) if kind in ("damaged", "altered")} == {
            ("damaged" if body not in (b'"text"', b"null") else "altered", f"message {name}")
        }
        with pytest.raises(StemmaError):
            contents(store)


def test_a_message_that_a_line_needs_is_missing(store, damage, path):
    row, _ = row_of(path, "message 7")
    line = ask(path, "SELECT min(id) FROM line")[0][0]
    damage.db.execute("DELETE FROM message WHERE id = ?", (row,))
    assert ("missing", f"line {line}") in found(store)
    with pytest.raises(StemmaError, match=f"message {row} is missing"):
        store.load("long")


def test_a_row_that_another_refers_to_is_missing(store, damage):
    damage.db.execute("PRAGMA foreign_keys = OFF")
    damage.db.execute("DELETE FROM run WHERE name = 'first'")
    damage.db.execute("DELETE FROM toolset")
    assert {subject.split()[0] for kind, subject in found(store) if kind == "missing"} == {"graph", "call"}


def test_what_nothing_refers_to_is_unreachable(store, damage, path):
    message = MessageGraph([user("nobody said this")])._line[0]
    line = damage.db.execute("SELECT max(id) + 1 FROM line").fetchone()[0]
    graph = damage.db.execute("SELECT max(id) + 1 FROM graph").fetchone()[0]
    damage.insert("message", {"hash": message.id, "body": message.body})
    first = row_of(path, "message 7")
    tip = chain(ROOT, [bytes.fromhex(first[1])])[-1]
    damage.insert(
        "line",
        {"id": line, "head": 0, "tail": 0, "added": write_runs([first[0]]), "length": 1, "depth": 0, "tip": tip},
    )
    damage.insert("toolset", {"hash": b"t" * 32, "body": b"[]"})
    damage.insert("graph", {"id": graph, "name": None, "metadata": b"{}", "seal": b""})
    assert {
        ("unreachable", f"message {message.id.hex()}"),
        ("unreachable", f"line {line}"),
        ("unreachable", f"toolset {(b't' * 32).hex()}"),
        ("unreachable", f"subagent's graph {graph}"),
    } <= found(store)


def test_a_line_that_stands_on_itself_or_on_a_later_one_is_cyclic(store, damage, path):
    lines = [row for (row,) in ask(path, "SELECT id FROM line WHERE base IS NOT NULL")]
    for line in lines:
        (base,) = damage.db.execute("SELECT base FROM line WHERE id = ?", (line,)).fetchone()
        for other in (line, max(lines)):
            damage.db.execute("UPDATE line SET base = ? WHERE id = ?", (other, line))
            assert ("cyclic", f"line {line}") in found(store)
        damage.db.execute("UPDATE line SET base = ? WHERE id = ?", (base, line))
    assert found(store) == set()


def test_a_cycle_of_lines_does_not_hold_up_a_reader(store, damage):
    damage.db.execute("UPDATE line SET base = id, head = 1")
    with pytest.raises(StemmaError):
        contents(store)
    with pytest.raises(StemmaError):
        store.find("0")


def test_a_conversation_that_contains_itself_is_cyclic(store, damage, path):
    top = ask(path, "SELECT id FROM graph WHERE name = 'agent'")[0][0]
    for graph, number in ask(path, "SELECT graph, number FROM contains"):
        (child,) = damage.db.execute(
            "SELECT child FROM contains WHERE graph = ? AND number = ?", (graph, number)
        ).fetchone()
        damage.db.execute("UPDATE contains SET child = ? WHERE graph = ? AND number = ?", (top, graph, number))
        assert ("cyclic", f"graph {top}") in found(store)
        with suppress(StemmaError):
            contents(store)  # it may fail, but it ends
        damage.db.execute("UPDATE contains SET child = ? WHERE graph = ? AND number = ?", (child, graph, number))
    assert found(store) == set()


def test_a_graph_that_was_tampered_with_is_named(store, damage):
    damage.db.execute("UPDATE graph SET metadata = ? WHERE name = 'agent'", (b'{"score":0.9}',))
    damage.db.execute("UPDATE run SET metadata = ? WHERE name = 'first'", (b'{"seed":8}',))
    assert found(store) == {("altered", "graph 'agent'"), ("altered", "run 'first'")}


def test_a_call_that_was_tampered_with_is_named(store, damage, path):
    (name,) = ask(path, "SELECT hash FROM call WHERE logprobs IS NOT NULL")[0]
    damage.db.execute("UPDATE call SET logprobs = zeroblob(8) WHERE logprobs IS NOT NULL")
    assert found(store) == {("altered", f"call {name.hex()}")}


def test_a_finding_says_what_is_wrong(store, damage):
    damage.db.execute("DELETE FROM message WHERE id % 7 = 0")
    damage.db.execute("UPDATE call SET made = saw")
    for finding in store.verify():
        assert finding.kind in ("altered", "missing", "unreachable", "cyclic", "damaged")
        assert finding.subject.split()[0] in ("message", "line", "call", "graph", "contains", "subagent's", "version")
        assert len(finding.detail.split()) >= 3


def test_a_store_in_memory_verifies_itself_too():
    store = MemoryStore()
    fill(store)
    assert store.verify() == []
    line = store._graphs["long"]._line
    line[5] = type(line[5])(line[5].body.replace(b"5", b"6"), "user", line[5].id)
    assert [finding.kind for finding in store.verify()] == ["altered"]


# ── the file itself ──────────────────────────────────────────────────────────────────────────────────────────────


def outcome(path: Path, truth: dict[str, Any]) -> str:
    """What a store with a changed byte does: it is refused, it is reported, or it says what it always said."""
    try:
        with SQLiteStore(path, create=False) as store:
            if store.verify():
                with suppress(StemmaError):
                    contents(store)
                return "reported"
            assert contents(store) == truth
            graph = store.load("long")
            graph.append(user("and it goes on"))
            store.save(graph, "long")
            assert store.load("long") == graph
            return "harmless"
    except StemmaError:
        return "refused"


def change_bytes(original: Path, seed: int, times: int) -> dict[str, int]:
    """Change one byte of the file at random places; how often each outcome came."""
    with SQLiteStore(original, create=False) as store:
        truth = contents(store)
    clean, chance = original.read_bytes(), random.Random(seed)
    used = [at for at, byte in enumerate(clean) if byte]
    counts = {"refused": 0, "reported": 0, "harmless": 0}
    with tempfile.TemporaryDirectory(dir=at_hand(original.parent)) as folder:
        for number in range(times):
            at = chance.choice(used) if number % 4 else chance.randrange(len(clean))
            byte = clean[at] ^ (1 << chance.randrange(8) if number % 2 else chance.randrange(1, 256))
            path = Path(folder, f"{number}.db")
            path.write_bytes(clean[:at] + bytes([byte]) + clean[at + 1 :])
            try:
                counts[outcome(path, truth)] += 1
            except BaseException as problem:
                problem.add_note(f"byte {at} was {clean[at]:#04x} and became {byte:#04x}")
                raise
            for file in Path(folder).iterdir():
                file.unlink()
    return counts


def test_a_changed_byte_anywhere_in_the_file_is_refused_or_reported_or_harmless(original):
    counts = change_bytes(original, seed=1, times=400)
    assert counts["reported"] + counts["refused"] >= 200, counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_changed_byte_anywhere_in_the_file_many_times(original, seed):
    change_bytes(original, seed, times=2000)


def test_a_file_cut_short_is_refused_or_reported(original):
    with SQLiteStore(original, create=False) as store:
        truth = contents(store)
    clean = original.read_bytes()
    with tempfile.TemporaryDirectory(dir=at_hand(original.parent)) as folder:
        for number, size in enumerate([1, 50, 99, 100, 4095, *range(4096, len(clean), 4096 + 777)]):
            path = Path(folder, f"{number}.db")
            path.write_bytes(clean[:size])
            assert outcome(path, truth) in ("refused", "reported")
