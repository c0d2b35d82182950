"""From rows to a graph, with a mark on it that says what is stored, so that the next save writes only what is new."""

import sqlite3
from collections.abc import Iterable, Iterator

from stemma.core.call import Call
from stemma.core.canonical import decode
from stemma.core.editing import Recorded
from stemma.core.fingerprint import START, call_fact, kept_fact, link_fact, roll
from stemma.core.graph import MessageGraph
from stemma.core.history import Kept
from stemma.core.ids import Id
from stemma.core.message import Message
from stemma.errors import StoreDamaged
from stemma.store.lines import EMPTY, StoredLine, newest_message, read_line, read_runs
from stemma.store.narrow import widen
from stemma.store.prompts import PromptReader, Stored
from stemma.store.records import Home
from stemma.store.saving import Address, Mark

_CHUNK = 500
"""How many messages one query asks for."""


class GraphReader:
    """Reads a graph and all below it; messages and subagents that several places share are read once."""

    def __init__(self, db: sqlite3.Connection, store: object) -> None:
        self.db, self.store = db, store
        self.messages: dict[int, Message] = {}
        self.newest = newest_message(db)
        self.prompts = PromptReader(db)
        self.near: dict[int, list[int]] = {}
        """The line read last; the next one is most often a change of it."""

    def read(self, row: int) -> MessageGraph:
        """The graph in `row`."""
        graphs = {member: MessageGraph() for member in self.rows_below(row)}
        name = self.db.execute("SELECT name FROM graph WHERE id = ?", (row,)).fetchone()[0]
        for member, graph in graphs.items():
            self.fill(graph, member, (name, member != row), graphs)
        return graphs[row]

    def rows_below(self, row: int) -> Iterable[int]:
        """A graph's row and those of all its subagents, each once."""
        found, waiting = {row: None}, [row]
        while waiting:
            children = self.db.execute("SELECT child FROM contains WHERE graph = ? ORDER BY number", (waiting.pop(),))
            fresh = [child for (child,) in children if child not in found]
            found.update(dict.fromkeys(fresh))
            waiting += fresh
        return found

    def fill(self, graph: MessageGraph, row: int, address: Address, graphs: dict[int, MessageGraph]) -> None:
        """Put into an empty graph what its row, and those that refer to it, say."""
        head = self.db.execute("SELECT line, seal FROM graph WHERE id = ?", (row,)).fetchone()
        if head is None:
            raise StoreDamaged(f"graph {row} is missing; `stemma verify` names what refers to it")
        taken, calls_hash = self.calls(graph, row)
        versions_hash: list[Id] = [START]
        versions = self.versions(row, taken, versions_hash)
        first = list(versions)  # before the current line, which is a change of them
        line = self.line(head[0])
        graph.restore(line.messages, first)
        _check_places(graph, row)
        links_hash = self.links(graph, row, graphs)
        counts = (len(first), len(graph._recorded), len(graph._links))
        home = Home(row, line, *counts, versions_hash[0], calls_hash, links_hash, head[1])
        graph.marks[self.store] = Mark(line, {address: home})

    def line(self, row: int | None) -> StoredLine:
        """A line with its messages."""
        if row is None:
            return EMPTY
        numbers = read_line(self.db, row, self.near, self.newest)
        self.near = {row: numbers}
        self.fetch(numbers)
        depth, tip = self.db.execute("SELECT depth, tip FROM line WHERE id = ?", (row,)).fetchone()
        return StoredLine(row, tip, depth, [self.messages[n] for n in numbers], numbers)

    def fetch(self, numbers: list[int]) -> None:
        """Read the messages that have not been read yet."""
        wanted = [n for n in dict.fromkeys(numbers) if n not in self.messages]
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            holes = ",".join("?" * len(chunk))
            for number, name, body in self.db.execute(
                f"SELECT id, hash, body FROM message WHERE id IN ({holes})", chunk
            ):
                # All of it: whoever reads the message later must not be the one to find it damaged.
                self.messages[number] = Message(body, decode(body)["role"], name)
        if missing := [n for n in wanted if n not in self.messages]:
            raise StoreDamaged(f"message {missing[0]} is missing; `stemma verify` names the lines that need it")

    def versions(self, row: int, taken: dict[int, list[int]], rolled: list[Id]) -> Iterator[tuple[Kept, list[Message]]]:
        """The superseded lines, oldest first; their facts are rolled into `rolled`."""
        found = self.db.execute(
            "SELECT v.number, v.line, v.at, v.reason, v.replaced, v.replacement, line.tip"
            " FROM version v JOIN line ON line.id = v.line WHERE v.graph = ? ORDER BY v.number",
            (row,),
        )
        for expected, (number, line_row, at, reason, replaced, runs, tip) in enumerate(found.fetchall()):
            if number != expected:
                raise StoreDamaged(f"version {expected} of graph {row} is missing")
            line, put = self.line(line_row), read_runs(runs, self.newest)
            self.fetch(put)
            replacement = tuple(self.messages[n] for n in put)
            kept = Kept(0, len(line.messages), at, reason, replaced, replacement, tuple(taken.get(number, ())))
            rolled[0] = roll(rolled[0], [kept_fact(kept, tip)])
            yield kept, line.messages

    def calls(self, graph: MessageGraph, row: int) -> tuple[dict[int, list[int]], Id]:
        """Recorded calls, into the graph; the numbers of those each version took; the hash of their facts."""
        found = self.db.execute(
            "SELECT p.number, p.at, p.version, c.hash, c.event, c.body, t.body,"
            " c.id, c.prompt_base, c.prompt_shared, c.prompt_ids, c.sampled_ids, c.logprobs"
            " FROM placed p JOIN call c ON c.id = p.call LEFT JOIN toolset t ON t.id = c.toolset"
            " WHERE p.graph = ? ORDER BY p.number",
            (row,),
        )
        taken: dict[int, list[int]] = {}
        facts = START
        for number, at, version, name, event, body, tools, call_row, *prompt, sampled, logprobs in found.fetchall():
            offered = None if tools is None else decode(tools)
            sampled_ids = widen(sampled)
            prompt_ids = self.prompts.read(call_row, Stored(*prompt), sampled_ids)
            tokens = {"prompt_ids": prompt_ids, "sampled_ids": sampled_ids, "logprobs": logprobs}
            call = Call.from_bytes(body, tools=offered, **tokens)
            graph._recorded.append(Recorded(call, at, event))
            if version is None:
                graph._live.append(number)
            else:
                taken.setdefault(version, []).append(number)
            facts = roll(facts, [call_fact(name, at)])
        return taken, facts

    def links(self, graph: MessageGraph, row: int, graphs: dict[int, MessageGraph]) -> Id:
        """Links to subagents, into the graph; the hash of their facts."""
        facts = START
        found = self.db.execute("SELECT message, child FROM contains WHERE graph = ? ORDER BY number", (row,))
        for message_row, child in found.fetchall():
            self.fetch([message_row])
            message = self.messages[message_row]
            graph._links.append((message, graphs[child]))
            facts = roll(facts, [link_fact(message.id, str(child).encode())])
        return facts


def _check_places(graph: MessageGraph, row: int) -> None:
    """Each call stands on one line of the graph, at a message of it."""
    lines = [(graph._live, len(graph))] + [(kept.calls, kept.length) for kept in graph._history.kept]
    if sorted(n for calls, _ in lines for n in calls) != list(range(len(graph._recorded))):
        raise StoreDamaged(f"a call of graph {row} is missing or stands nowhere; `stemma verify` names what is wrong")
    if not all(0 <= graph._recorded[n].at < length for calls, length in lines for n in calls):
        raise StoreDamaged(f"a call of graph {row} stands where no message is; `stemma verify` names what is wrong")
