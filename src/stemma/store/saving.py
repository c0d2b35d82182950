"""From a graph to rows: only what is new since the last save of this handle.

`Snapshot` is taken where the graph lives; `write` runs in the writer's transaction, perhaps later, and puts down
whatever the handle's mark does not know of yet: lines as changes of the last stored line, versions, calls, links.
`tests/store/test_sqlite.py` counts the rows.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from secrets import token_bytes
from typing import Any

import msgspec

from stemma.core.call import Call
from stemma.core.editing import Recorded
from stemma.core.fingerprint import call_fact, children_first, combine, kept_fact, link_fact, roll
from stemma.core.graph import MessageGraph
from stemma.core.history import Kept
from stemma.core.ids import ROOT, Id, call_id
from stemma.core.message import Message
from stemma.errors import NameTaken
from stemma.store.lines import EMPTY, StoredLine, nodes_of, write_line, write_messages, write_runs
from stemma.store.memory import name_taken, shape
from stemma.store.narrow import narrow
from stemma.store.prompts import Seen, Stored, shortened
from stemma.store.records import Home, insert_graph, insert_rows, run_of, seal_graph, write_toolset
from stemma.store.writer import Transaction

_LOOK_BACK = 8
"""How many earlier calls a prompt may build on: enough for parallel samples and rollbacks, without a search."""


Address = tuple[str, bool]
"""The name a graph was saved under, and whether it stands below the graph of that name: a subagent's conversation has
a row for each name that reaches it, so that each name keeps what was saved under it."""


class Mark(msgspec.Struct, frozen=True):
    """What a store has of a handle. Shared by forks, hence frozen."""

    line: StoredLine
    homes: dict[Address, Home]

    def fork(self) -> "Mark":
        """A fork is another conversation: it shares lines, not homes."""
        return Mark(self.line, {})


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """All of a graph that a save may need, as it was at one moment."""

    graph: MessageGraph
    line: list[Message]
    nodes: list[Id]
    kept: list[Kept]
    kept_lines: dict[int, list[Message]]
    """Lines of the versions that were not known to be stored."""
    recorded: list[Recorded]
    live: list[int]
    links: list[tuple[Message, MessageGraph]]


def take_all(graph: MessageGraph, store: object, name: str) -> list[Snapshot]:
    """The graph as it is now, after all that it contains, for saving it under `name`."""
    *below, top = children_first(graph)
    for member in (*below, top):
        member.check_thread()  # what another thread changes meanwhile cannot be saved whole
    mark: Mark | None = graph.marks.get(store)
    whole = mark is None or (name, False) not in mark.homes
    return [*(_take(child, store, (name, True), whole) for child in below), _take(top, store, (name, False), whole)]


def _take(graph: MessageGraph, store: object, address: Address, whole: bool) -> Snapshot:
    graph._settle()
    mark: Mark | None = graph.marks.get(store)
    known = 0 if whole or mark is None or address not in mark.homes else mark.homes[address].versions
    return Snapshot(
        graph=graph,
        line=graph._line.copy(),
        nodes=graph.node_ids().copy(),
        kept=graph._history.kept.copy(),
        kept_lines={number: line for number, _, line in graph._history.newest_first(graph._line, known)},
        recorded=graph._recorded.copy(),
        live=graph._live.copy(),
        links=graph.links(),
    )


def snapshot_fingerprint(snapshots: list[Snapshot]) -> Id:
    """`fingerprint` of the last of `snapshots`, which come children first and hold all their versions."""
    known: dict[int, Id] = {}
    for snapshot in snapshots:
        line, nodes = snapshot.line, snapshot.nodes
        tips = [nodes_of(snapshot.kept_lines[n], line, nodes)[-1] for n in range(len(snapshot.kept))]
        versions = list(zip(snapshot.kept, tips, strict=True))
        links = [(message.id, known[id(child)]) for message, child in snapshot.links]
        known[id(snapshot.graph)] = combine(nodes[-1] if nodes else ROOT, versions, snapshot.recorded, links)
    return known[id(snapshots[-1].graph)]


class GraphWriter:
    """One graph's way to disk."""

    def __init__(
        self, transaction: Transaction, store: object, snapshot: Snapshot, address: Address, children: dict[int, int]
    ) -> None:
        self.transaction, self.db = transaction, transaction.db
        self.store, self.snapshot, self.address, self.children = store, snapshot, address, children
        self.name = None if address[1] else address[0]
        self.mark = known_mark(transaction, store, snapshot.graph) or Mark(EMPTY, {})
        self.run: int | None = None
        """The run that the row is in."""
        self.call_facts: dict[int, Id] = {}
        self.call_rows: dict[int, int] = {}
        self.new_rows: dict[str, list[tuple[Any, ...]]] = {"version": [], "call": [], "placed": [], "contains": []}
        """What is to be written after the graph's own row, to which it refers."""

    def write(self, run: str | None, metadata: bytes | None) -> int:
        """Write what is new, with metadata as `canonical` gives it; the graph's row."""
        before = self.home()
        line, home = self.write_versions(before)
        line = write_line(self.transaction, self.snapshot.line, self.snapshot.nodes, line)
        home = msgspec.structs.replace(self.write_links(self.write_calls(home)), line=line)
        if home != before or self.is_new or run is not None or metadata is not None:
            home = self.write_head(home, run, metadata)
            insert_rows(self.db, self.new_rows)
            note(self.transaction, self.store, self.snapshot.graph, Mark(line, {**self.mark.homes, self.address: home}))
        return home.row

    @property
    def is_new(self) -> bool:
        """Whether the graph has no row yet."""
        return self.address not in self.mark.homes

    def home(self) -> Home:
        """The row to write to: ours, or a new one; never one that somebody else has moved."""
        if self.is_new:
            [row] = self.transaction.numbers("graph", 1)
            return Home(row)
        ours = self.mark.homes[self.address]
        held = self.db.execute("SELECT run, seal, line FROM graph WHERE id = ?", (ours.row,)).fetchone()
        if held is None or (held[1] != ours.seal and held[1] != self.seal_as_held(held[0], ours)):
            raise NameTaken(name_taken(self.address[0]))
        self.run = held[0]
        if held[2] in (ours.line.row, None):
            return ours
        # Somebody went away and came back to the same messages: what we write now comes after their line.
        depth = self.db.execute("SELECT depth FROM line WHERE id = ?", (held[2],)).fetchone()[0]
        return msgspec.structs.replace(ours, line=msgspec.structs.replace(ours.line, row=held[2], depth=depth))

    def seal_as_held(self, run: int | None, ours: Home) -> Id:
        """The seal if nobody has changed more than the run and the metadata."""
        return seal_graph(self.name, run, self.held_metadata(ours.row), ours.line.tip, ours)

    def held_metadata(self, row: int) -> bytes:
        held = self.db.execute("SELECT metadata FROM graph WHERE id = ?", (row,)).fetchone()
        return held[0] if held else b"{}"

    def write_versions(self, home: Home) -> tuple[StoredLine, Home]:
        """New versions, oldest first, each line as a change of the one before."""
        facts, snapshot = [], self.snapshot
        line = self.mark.line if self.is_new else home.line
        if home.versions == len(snapshot.kept):
            return line, home
        for number in range(home.versions, len(snapshot.kept)):
            kept, messages = snapshot.kept[number], snapshot.kept_lines[number]
            nodes = nodes_of(messages, snapshot.line, snapshot.nodes)
            line = write_line(self.transaction, messages, nodes, line)
            replacement = write_runs(self.write_messages(kept.replacement))
            values = (home.row, number, line.row, kept.index, kept.reason, kept.replaced, replacement)
            self.new_rows["version"].append(values)
            for n in kept.calls:
                self.place(home, n, nodes, number)
            facts.append(kept_fact(kept, nodes[-1]))
        rolled = roll(home.versions_hash, facts)
        return line, msgspec.structs.replace(home, versions=len(snapshot.kept), versions_hash=rolled)

    def write_calls(self, home: Home) -> Home:
        """New calls on the current line; those on versions are placed already."""
        snapshot = self.snapshot
        if home.calls == len(snapshot.recorded):
            return home
        for n in snapshot.live[bisect_left(snapshot.live, home.calls) :]:
            self.place(home, n, snapshot.nodes, None)
        facts = [self.call_facts[n] for n in range(home.calls, len(snapshot.recorded))]
        rolled = roll(home.calls_hash, facts)
        return msgspec.structs.replace(home, calls=len(snapshot.recorded), calls_hash=rolled)

    def place(self, home: Home, n: int, nodes: list[Id], version: int | None) -> None:
        """Write call `n`, or note that it now stands on a version."""
        if n < home.calls:
            self.db.execute("UPDATE placed SET version = ? WHERE graph = ? AND number = ?", (version, home.row, n))
            return
        recorded = self.snapshot.recorded[n]
        at = recorded.at
        name, row = self.write_call(home, n, nodes[at - 1] if at else ROOT, nodes[at])
        self.call_rows[n] = row
        self.new_rows["placed"].append((home.row, n, row, at, version))
        self.call_facts[n] = call_fact(name, at)

    def write_call(self, home: Home, n: int, saw: Id, made: Id) -> tuple[Id, int]:
        """A call's id and row; one that another graph has written already, as forks do, is the same call."""
        recorded = self.snapshot.recorded[n]
        parts, new = recorded.call.parts(), recorded.event is None
        recorded.event = recorded.event or token_bytes(12)
        name = call_id(saw, made, parts, recorded.event)
        held = None if new else self.db.execute("SELECT id FROM call WHERE hash = ?", (name,)).fetchone()
        if held is not None:
            return name, held[0]
        prompt = shortened(recorded.call.prompt_ids, self.earlier(home, n))
        return name, self.insert_call((name, saw, made, recorded.event), recorded.call, parts, prompt)

    def insert_call(self, names: tuple[bytes, ...], call: Call, parts: tuple[bytes, ...], prompt: Stored) -> int:
        toolset = None if call.tools is None else write_toolset(self.transaction, parts[1])
        [row] = self.transaction.numbers("call", 1)
        tokens = (*prompt, narrow(call.sampled_ids), call.logprobs)
        self.new_rows["call"].append((row, *names, toolset, parts[0], *tokens))
        return row

    def earlier(self, home: Home, n: int) -> Iterator[tuple[int, Seen]]:
        """The last few calls before `n` that are on disk and whose tokens are known."""
        for number in range(n - 1, max(n - _LOOK_BACK, 0) - 1, -1):
            call = self.snapshot.recorded[number].call
            if call.prompt_ids and (number < home.calls or number in self.call_rows):
                yield self.row_of_call(home, number), Seen(call.prompt_ids, call.sampled_ids or b"")

    def row_of_call(self, home: Home, number: int) -> int:
        if number not in self.call_rows:
            placed = "SELECT call FROM placed WHERE graph = ? AND number = ?"
            self.call_rows[number] = self.db.execute(placed, (home.row, number)).fetchone()[0]
        return self.call_rows[number]

    def write_messages(self, messages: Iterable[Message]) -> list[int]:
        return write_messages(self.transaction, [(message.id, message.body) for message in messages])

    def write_links(self, home: Home) -> Home:
        """New links to subagents."""
        facts, links = [], self.snapshot.links
        if home.links == len(links):
            return home
        for number in range(home.links, len(links)):
            message, child = links[number]
            child_row = self.children[id(child)]
            self.new_rows["contains"].append((home.row, number, *self.write_messages([message]), child_row))
            facts.append(link_fact(message.id, str(child_row).encode()))
        return msgspec.structs.replace(home, links=len(links), links_hash=roll(home.links_hash, facts))

    def write_head(self, home: Home, run: str | None, metadata: bytes | None) -> Home:
        """Move the tip, and seal all that belongs to the graph."""
        run_row = self.run if run is None else run_of(self.transaction, run)
        about = self.held_metadata(home.row) if metadata is None else metadata
        seal = seal_graph(self.name, run_row, about, home.line.tip, home)
        if self.is_new:
            insert_graph(self.db, (home.row, self.name, run_row, home.line.row, about, seal))
        else:
            self.db.execute(
                "UPDATE graph SET run = ?, line = ?, metadata = ?, seal = ? WHERE id = ?",
                (run_row, home.line.row, about, seal, home.row),
            )
        return msgspec.structs.replace(home, seal=seal)


def adopt(transaction: Transaction, store: object, snapshots: list[Snapshot], loaded: MessageGraph) -> bool:
    """Let a graph that says what `loaded` says go on in its rows; False if the two share subagents differently."""
    members = children_first(loaded)
    if shape((s.graph, s.links) for s in snapshots) != shape((graph, graph.links()) for graph in members):
        return False
    for snapshot, same in zip(snapshots, members, strict=True):
        mark: Mark = same.marks[store]
        homes = (known_mark(transaction, store, snapshot.graph) or mark).homes
        note(transaction, store, snapshot.graph, Mark(mark.line, {**homes, **mark.homes}))
        for mine, theirs in zip(snapshot.recorded, same._recorded, strict=True):
            mine.event = theirs.event
    return True


def note(transaction: Transaction, store: object, graph: MessageGraph, mark: Mark) -> None:
    """Let later jobs of this transaction see the mark now, and everybody once it is on disk."""
    transaction.notes[id(graph)] = mark
    transaction.after[id(graph)] = lambda: graph.marks.__setitem__(store, mark)


def known_mark(transaction: Transaction, store: object, graph: MessageGraph) -> Mark | None:
    """What is known to be stored of a graph, this transaction included."""
    mark: Mark | None = transaction.notes.get(id(graph)) or graph.marks.get(store)
    return mark
