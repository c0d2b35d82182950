"""What people call a line or a message, and where it stands.

    chat-1           the current line of a graph, or its last message
    chat-1@0         its oldest version
    chat-1:4         the message at index 4; chat-1@0:-1 is the last one of that version
    chat-1/0         the subagent conversation of its first link; chat-1/0/2@1:3 goes on as above
    3f2a91           a node or message, by a prefix of its id of four digits or more that fits no other

A name comes before an id, and the longest name first, since names may hold any of these signs.
`tests/cli/test_address.py` proves it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stemma.cli.alignment import equal_run
from stemma.core.graph import MessageGraph
from stemma.core.ids import ROOT, Id, chain
from stemma.core.message import Message
from stemma.errors import Ambiguous, NotFound
from stemma.store.protocol import Found, Store

SHORT = 10
"""How many digits of an id people see: among a million nodes, two that agree in so many are unlikely."""

SHORTEST = 4
"""How many digits of an id are needed to name it: fewer are more often a slip than meant."""
_MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way to read an address that is no id."""

    name: str
    path: tuple[int, ...]
    version: int | None
    index: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """A line, and a message on it."""

    name: str
    """The graph's."""
    path: tuple[int, ...]
    """The numbers of the links that lead to the subagent's graph; empty for the named one."""
    graph: MessageGraph
    version: int | None
    line: list[Message]
    index: int
    """Of the message; the last one if a whole line was named, and -1 if that is empty."""

    @property
    def graph_address(self) -> str:
        """What to call the graph."""
        return address(self.name, self.path)

    def address(self, index: int | None = None) -> str:
        """What to call the line, or the message at `index` of it."""
        return address(self.name, self.path, self.version, index)

    def nodes(self) -> list[Id]:
        """The ids of the line's nodes."""
        return self.graph.node_ids() if self.version is None else chain(ROOT, (m.id for m in self.line))

    def elsewhere(self) -> list[str]:
        """Other lines of the same graph that go through the same node, the newest first."""
        lines: list[tuple[int | None, list[Message]]] = [(None, self.graph._line)]
        lines += [(n, line) for n, _, line in self.graph._history.newest_first(self.graph._line)]
        head = self.line[: self.index + 1]
        through = [n for n, line in lines if n != self.version and equal_run(head, 0, line, 0) == len(head)]
        return [address(self.name, self.path, version, self.index) for version in through]


def address(name: str, path: tuple[int, ...], version: int | None = None, index: int | None = None) -> str:
    """The address that `resolve` reads back."""
    links = "".join(f"/{number}" for number in path)
    return name + links + ("" if version is None else f"@{version}") + ("" if index is None else f":{index}")


def linked(graph: MessageGraph, name: str) -> dict[Id, list[tuple[str, MessageGraph]]]:
    """The subagents' conversations of the graph called `name`: by the id of the tool result, with their addresses."""
    found: dict[Id, list[tuple[str, MessageGraph]]] = {}
    for number, (message, child) in enumerate(graph.links()):
        known = found.setdefault(message.id, [])
        if all(child is not other for _, other in known):
            known.append((f"{name}/{number}", child))
    return found


def resolve(store: Store, text: str) -> Place:
    """The place that `text` names, or `NotFound` or `Ambiguous`."""
    for reading in _readings(text):
        graph = _load(store, reading.name)
        if graph is not None:
            return _place(text, reading, graph)
    found = store.find(text.lower())
    if found and len(text) < SHORTEST and len(found) == 1:
        raise NotFound(f"nothing here is called {text!r}; to name a message, give at least {SHORTEST} digits of its id")
    if not found:
        raise NotFound(f"nothing here is called {text!r}, and no id begins so; `stemma log` lists the graphs")
    if len(found) > 1:
        raise Ambiguous(
            f"{text!r} begins {len(found)} ids: {_candidates(found, max(SHORT, len(text) + 4))}; give more digits"
        )
    one = found[0]
    return _place(text, _Reading(one.graph, one.path, one.version, one.index), store.load(one.graph))


def _load(store: Store, name: str) -> MessageGraph | None:
    if not name.isprintable():  # no graph has such a name, and SQLite cannot even ask for some of them
        return None
    try:
        return store.load(name)
    except NotFound:
        return None


def _readings(text: str) -> Iterator[_Reading]:
    for line, index in _cut_number(text, ":", r"-?\d+"):
        for whole, version in _cut_number(line, "@", r"\d+"):
            name, path = whole, tuple[int, ...]()
            yield _Reading(name, path, version, index)
            while cut := re.fullmatch(r"(.+)/(\d{1,9})", name, re.DOTALL):
                name, path = cut[1], (int(cut[2]), *path)
                yield _Reading(name, path, version, index)


def _cut_number(text: str, sign: str, number: str) -> Iterator[tuple[str, int | None]]:
    """The text as it is, and then, if it ends with a number behind `sign`, without it."""
    yield text, None
    if cut := re.fullmatch(f"(.+){sign}({number})", text, re.DOTALL | re.ASCII):
        yield cut[1], int(cut[2][:12])


def _place(text: str, reading: _Reading, graph: MessageGraph) -> Place:
    for depth, number in enumerate(reading.path):
        links = graph.links()
        if number >= len(links):
            where = address(reading.name, reading.path[:depth])
            raise NotFound(f"{text!r}: {where!r} has {len(links)} links to subagents, counted from 0")
        graph = links[number][1]
    line = _line(text, reading.version, graph)
    index = len(line) - 1
    if reading.index is not None:
        if not -len(line) <= reading.index < len(line):
            raise NotFound(f"{text!r}: that line has {len(line)} messages, counted from 0")
        index = range(len(line))[reading.index]
    return Place(reading.name, reading.path, graph, reading.version, line, index)


def _line(text: str, version: int | None, graph: MessageGraph) -> list[Message]:
    if version is None:
        return graph._line
    if version >= len(graph.versions):
        raise NotFound(f"{text!r}: that graph has {len(graph.versions)} versions, counted from 0")
    return graph.versions[version].line()


def _candidates(found: list[Found], digits: int) -> str:
    first = [f"{f.kind} {f.id[:digits]} at {address(f.graph, f.path, f.version, f.index)!r}" for f in found]
    more = [f"and {len(found) - _MOST_CANDIDATES} more"] if len(found) > _MOST_CANDIDATES else []
    return ", ".join(first[:_MOST_CANDIDATES] + more)
