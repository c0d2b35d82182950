"""The check of a whole file: every id is derived again from what it is made of.

Bodies give message ids, messages give the chain of every line, chains give what each call saw and made, and all of
that gives the seal of each graph. What refers to nothing, what nothing refers to, and what returns to itself is
found on the way. `tests/store/test_verify.py` damages a store in each of these ways, byte by byte.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from stemma.core.call import told
from stemma.core.fingerprint import START, call_fact, link_fact, roll, version_fact
from stemma.core.ids import ROOT, Id, call_id, chain, digest
from stemma.core.verify import Finding, Kind, check_message
from stemma.errors import StoreDamaged
from stemma.store.lines import EMPTY, UNREADABLE, newest_message, read_line, read_runs
from stemma.store.narrow import widen
from stemma.store.prompts import PromptReader, Stored
from stemma.store.records import Home, seal_graph, seal_run

T = TypeVar("T")


class _Missing(StoreDamaged):
    """What a record refers to is not there."""


def check(db: sqlite3.Connection) -> list[Finding]:
    """Everything that is wrong with the file."""
    checker = _Checker(db)
    for part in (checker.pages, checker.bodies, checker.lines, checker.calls, checker.places, checker.graphs):
        try:
            part()
        except (sqlite3.DatabaseError, UnicodeError) as problem:  # the latter where SQLite's complaint quotes damage
            checker.find("damaged", "file", str(problem))
            break
    else:
        checker.unreachable()
    return checker.findings


class _Checker:
    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.findings: list[Finding] = []
        self.newest = newest_message(db)
        self.hashes: dict[int, Id] = {}
        """The id of each message, by its row."""
        self.tips: dict[int, tuple[Id, int]] = {}
        """The last node and the length of each line that is whole, by its row."""
        self.depths: dict[int, int] = {}
        """How many bases stand behind each of them."""
        self.near: dict[int, list[int]] = {}
        self.prompts = PromptReader(db)
        self.used: set[int] = set()
        """Rows of messages that something refers to."""

    def find(self, kind: Kind, subject: str, detail: str) -> None:
        self.findings.append(Finding(kind, subject, detail))

    def guarded(self, subject: str, act: Callable[..., T], *args: Any) -> T | None:
        """`act(*args)`, or None and a finding if the record cannot be read."""
        try:
            return act(*args)
        except _Missing as problem:
            self.find("missing", subject, str(problem))
        except StoreDamaged as problem:
            self.find("damaged", subject, str(problem))
        except UNREADABLE as problem:
            self.find("damaged", subject, f"it cannot be read: {problem!r}")
        return None

    # ── one table after another ──────────────────────────────────────────────────────────────────────────────

    def pages(self) -> None:
        """What SQLite itself can say, and references to rows that are not there."""
        for (complaint,) in self.db.execute("PRAGMA integrity_check"):
            if complaint != "ok":
                self.find("damaged", "file", complaint)
        for table, row, parent, _ in self.db.execute("PRAGMA foreign_key_check"):
            self.find("missing", f"{table} {row or ''}".strip(), f"it refers to a row of {parent} that is not there")

    def bodies(self) -> None:
        for row, name, body in self.db.execute("SELECT id, hash, body FROM message"):
            self.guarded(f"message {row}", self.body, name, body)
            self.hashes[row] = name
        for row, name, body in self.db.execute("SELECT id, hash, body FROM toolset"):
            self.guarded(f"toolset {row}", self.toolset, name, body)

    def body(self, name: Id, body: bytes) -> None:
        finding = check_message(f"message {name.hex()}", body, name)
        if finding is not None:
            self.findings.append(finding)

    def toolset(self, name: Id, body: bytes) -> None:
        if digest("toolset", body) != name:
            self.find("altered", f"toolset {name.hex()}", "its body does not have the hash it is kept under")

    def lines(self) -> None:
        found = self.db.execute("SELECT id, base, head, tail, added, length, depth, tip FROM line ORDER BY id")
        for row, *columns in found.fetchall():
            self.guarded(f"line {row}", self.line, row, *columns)

    def line(
        self, row: int, base: int | None, head: int, tail: int, added: bytes, length: int, depth: int, tip: Id
    ) -> None:
        if base is not None and base >= row:
            self.find("cyclic", f"line {row}", f"its base, line {base}, does not stand before it")
            return
        nodes = self.last_node(row, base, head, tail, added)
        if nodes != (tip, length):
            self.find("altered", f"line {row}", "its messages do not give the chain of hashes it is kept under")
        self.tips[row] = nodes
        self.depths[row] = self.depths.get(base, -1) + 1 if base is not None and (head or tail) else 0
        if depth != self.depths[row]:
            self.find(
                "altered", f"line {row}", f"it says {depth!r} bases stand behind it; there are {self.depths[row]}"
            )

    def last_node(self, row: int, base: int | None, head: int, tail: int, added: bytes) -> tuple[Id, int]:
        """The tip and length of a line; one that only appends is derived from its base's."""
        numbers = read_runs(added, self.newest)
        self.used.update(numbers)
        if base is not None and tail == 0 and self.tips.get(base, (b"", -1))[1] == head:
            return [self.tips[base][0], *chain(self.tips[base][0], self.message_ids(numbers))][-1], head + len(numbers)
        numbers = read_line(self.db, row, self.near, self.newest)
        self.near = {row: numbers}
        return [ROOT, *chain(ROOT, self.message_ids(numbers))][-1], len(numbers)

    def message_ids(self, numbers: list[int]) -> list[Id]:
        try:
            return [self.hashes[n] for n in numbers]
        except KeyError as problem:
            raise _Missing(f"message {problem.args[0]} is missing") from problem

    def calls(self) -> None:
        found = self.db.execute(
            "SELECT c.id, c.hash, c.saw, c.made, c.event, c.body, t.body,"
            " c.prompt_base, c.prompt_shared, c.prompt_ids, c.sampled_ids, c.logprobs"
            " FROM call c LEFT JOIN toolset t ON t.id = c.toolset ORDER BY c.id"
        )
        for row, name, saw, made, event, body, tools, *prompt, sampled, logprobs in found:
            tokens = (Stored(*prompt), sampled, logprobs)
            self.guarded(f"call {row}", self.call, row, (name, saw, made, event), body, tools, tokens)

    def call(
        self, row: int, names: tuple[Id, Id, Id, bytes], body: bytes, tools: bytes | None, tokens: tuple[Any, ...]
    ) -> None:
        (name, saw, made, event), (prompt, sampled, logprobs) = names, tokens
        sampled_ids = widen(sampled)
        prompt_ids = self.prompts.read(row, prompt, sampled_ids)
        parts = (body, tools or b"null", *map(told, (prompt_ids, sampled_ids, logprobs)))
        if call_id(saw, made, parts, event) != name:
            self.find("altered", f"call {name.hex()}", "its record does not have the hash it is kept under")

    def places(self) -> None:
        """That each call saw and made what stands in its line."""
        found = self.db.execute(
            "SELECT coalesce(v.line, g.line) AS line, p.at, c.hash, c.saw, c.made FROM placed p"
            " JOIN graph g ON g.id = p.graph JOIN call c ON c.id = p.call"
            " LEFT JOIN version v ON v.graph = p.graph AND v.number = p.version ORDER BY 1, 2"
        )
        for line, calls in groupby(found.fetchall(), key=itemgetter(0)):
            nodes = self.guarded(f"line {line}", self.nodes, line) if line in self.tips else None
            for _, at, name, saw, made in calls if nodes else ():
                self.guarded(f"call {name!r}", self.place, nodes, line, at, name, saw, made)

    def place(self, nodes: list[Id], line: int, at: int, name: Id, saw: Id, made: Id) -> None:
        chained = [ROOT, *nodes[max(at - 1, 0) : at + 1]][-2:] if 0 <= at < len(nodes) else []
        if chained != [saw, made]:
            self.find("altered", f"call {name.hex()}", f"it does not stand at {at} of line {line}")

    def nodes(self, line: int) -> list[Id]:
        numbers = read_line(self.db, line, self.near, self.newest)
        self.near = {line: numbers}
        return chain(ROOT, self.message_ids(numbers))

    # ── graphs ───────────────────────────────────────────────────────────────────────────────────────────────

    def graphs(self) -> None:
        for name, *rest in self.db.execute("SELECT name, metadata, seal FROM run"):
            self.guarded(f"run {name!r}", self.run, name, *rest)
        for row, name, *rest in self.db.execute("SELECT id, name, run, line, metadata, seal FROM graph").fetchall():
            subject = f"graph {name!r}" if name is not None else f"subagent's graph {row}"
            self.guarded(subject, self.graph, subject, row, name, *rest)
        self.cycles()

    def run(self, name: str, about: bytes, seal: Id) -> None:
        if seal_run(name, about) != seal:
            self.find("altered", f"run {name!r}", "its record does not have the seal it is kept under")

    def graph(
        self, subject: str, row: int, name: str | None, run: int | None, line: int | None, about: bytes, seal: Id
    ) -> None:
        tip = ROOT if line is None else self.tip(line)
        if seal_graph(name, run, about, tip, self.home(row)) != seal:
            self.find("altered", subject, "its record does not have the seal it is kept under")

    def tip(self, line: int) -> Id:
        if line not in self.tips:
            raise _Missing(f"line {line} is missing or not whole")
        return self.tips[line][0]

    def home(self, row: int) -> Home:
        """The hashes of a graph's versions, calls and links, from their rows."""
        versions, calls, links = (list(facts(row)) for facts in (self.version_facts, self.call_facts, self.link_facts))
        counts = (len(versions), len(calls), len(links))
        return Home(row, EMPTY, *counts, roll(START, versions), roll(START, calls), roll(START, links))

    def version_facts(self, row: int) -> Iterator[Id]:
        taken: dict[int, list[int]] = {}
        placed = "SELECT version, number FROM placed WHERE graph = ? AND version IS NOT NULL ORDER BY number"
        for version, number in self.db.execute(placed, (row,)):
            taken.setdefault(version, []).append(number)
        columns = "SELECT number, line, at, reason, replaced, replacement FROM version WHERE graph = ? ORDER BY number"
        for number, line, at, reason, replaced, runs in _in_order("version", self.db.execute(columns, (row,))):
            put = read_runs(runs, self.newest)
            self.used.update(put)
            tip, length = self.tip(line), self.tips[line][1]
            if at + replaced > length:
                raise StoreDamaged(f"version {number} replaces more than its line has")
            yield version_fact(tip, at, reason, replaced, self.message_ids(put), taken.pop(number, []))
        if taken:
            raise _Missing(f"version {min(taken)}, on which a call stands, is missing")

    def call_facts(self, row: int) -> Iterator[Id]:
        columns = (
            "SELECT p.number, c.hash, p.at FROM placed p JOIN call c ON c.id = p.call"
            " WHERE p.graph = ? ORDER BY p.number"
        )
        for _, name, at in _in_order("call", self.db.execute(columns, (row,))):
            yield call_fact(name, at)

    def link_facts(self, row: int) -> Iterator[Id]:
        columns = "SELECT number, message, child FROM contains WHERE graph = ? ORDER BY number"
        for _, message, child in _in_order("link", self.db.execute(columns, (row,))):
            self.used.add(message)
            yield link_fact(self.message_ids([message])[0], str(child).encode())

    def cycles(self) -> None:
        """Conversations that contain themselves: what is left when leaves are taken away again and again."""
        below: dict[int, set[int]] = {}
        above: dict[int, set[int]] = {}
        for parent, child in self.db.execute("SELECT graph, child FROM contains"):
            below.setdefault(parent, set()).add(child)
            above.setdefault(child, set()).add(parent)
        leaves = [graph for graph in above if graph not in below]
        while leaves:
            leaf = leaves.pop()
            for parent in above.get(leaf, ()):
                below[parent].discard(leaf)
                if not below[parent]:
                    del below[parent]
                    leaves.append(parent)
        for graph in sorted(below):
            self.find("cyclic", f"graph {graph}", "it contains itself, directly or through its subagents")

    def unreachable(self) -> None:
        for row, name in self.hashes.items():
            if row not in self.used:
                self.find("unreachable", f"message {name.hex()}", "no line or link has it")
        questions = {
            "line": "SELECT id FROM line WHERE id NOT IN (SELECT line FROM graph WHERE line IS NOT NULL"
            " UNION SELECT line FROM version UNION SELECT base FROM line WHERE base IS NOT NULL)",
            "call": "SELECT hex(hash) FROM call WHERE id NOT IN (SELECT call FROM placed)",
            "toolset": "SELECT hex(hash) FROM toolset WHERE id NOT IN"
            " (SELECT toolset FROM call WHERE toolset IS NOT NULL)",
            "subagent's graph": "SELECT id FROM graph WHERE name IS NULL AND id NOT IN (SELECT child FROM contains)",
        }
        for what, question in questions.items():
            for (which,) in self.db.execute(question):
                self.find("unreachable", f"{what} {str(which).lower()}", "nothing refers to it")


def _in_order(what: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """`rows`, each of which begins with its number: 0, 1, 2 …"""
    for expected, row in enumerate(rows):
        if row[0] != expected:
            raise StoreDamaged(f"its {what} {expected} has the number {row[0]}")
        yield row
