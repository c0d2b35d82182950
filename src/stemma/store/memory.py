"""A store in memory: the reference that `SQLiteStore` is compared with, and handy in scripts.

It keeps forks, which share every message with the graphs they were made from.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from stemma.core.canonical import plain
from stemma.core.fingerprint import children_first, fingerprint
from stemma.core.fresh import Fresh
from stemma.core.graph import MessageGraph
from stemma.core.ids import ROOT, Id, chain
from stemma.core.message import Message
from stemma.core.names import check_name
from stemma.core.verify import Finding, check_message
from stemma.errors import NameTaken, NotFound
from stemma.store.merge import merge
from stemma.store.protocol import Found, GraphInfo, MergeReport, Prefer, Prepared, RunInfo, Store


class _Mark:
    """What a handle was last saved as; a fork is another conversation and starts without."""

    def __init__(self) -> None:
        self.saved: dict[str, Id] = {}

    def fork(self) -> "_Mark":
        return _Mark()


class MemoryStore:
    """Named graphs in a dict."""

    def __init__(self) -> None:
        self._graphs: dict[str, MessageGraph] = {}
        self._about: dict[str, tuple[str | None, dict[str, Any]]] = {}
        self._runs: dict[str, dict[str, Any]] = {}

    def save(
        self, graph: MessageGraph, name: str, *, run: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        check_name("graph's name", name)
        if run is not None:
            check_name("run's name", run)
        given = None if metadata is None else plain(dict(metadata), "metadata")
        for member in graph.reach():
            member.check_thread()
        mark, now = graph.marks.setdefault(self, _Mark()), fingerprint(graph)
        held = self._graphs.get(name)
        if held is not None and not _goes_on(graph, held, mark.saved.get(name), now):
            raise NameTaken(name_taken(name))
        old_run, old_metadata = self._about.get(name, (None, {}))
        if run is not None:
            self._runs.setdefault(run, {})
        about = old_metadata if given is None else given
        self._graphs[name], self._about[name] = _snapshot(graph), (run or old_run, about)
        mark.saved[name] = now

    def save_soon(
        self, graph: MessageGraph, name: str, *, run: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> "Future[None]":
        done: Future[None] = Future()
        self.save(graph, name, run=run, metadata=metadata)
        done.set_result(None)
        return done

    def prepare(
        self,
        graph: MessageGraph | Fresh,
        name: str,
        *,
        run: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Prepared:
        self.save(graph.graph() if isinstance(graph, Fresh) else graph, name, run=run, metadata=metadata)
        return lambda _: None

    def write(self, prepared: Sequence[Prepared]) -> None:
        """All of it was kept when it was prepared."""

    def load(self, name: str) -> MessageGraph:
        if name not in self._graphs:
            raise NotFound(f"there is no graph {name!r} here; `graphs()` lists them")
        graph = _snapshot(self._graphs[name])
        mark = graph.marks[self] = _Mark()
        mark.saved[name] = fingerprint(graph)
        return graph

    def names(self, run: str | None = None) -> list[str]:
        return [name for name in sorted(self._graphs) if run in (None, self._about[name][0])]

    def metadata(self, name: str) -> dict[str, Any]:
        if name not in self._about:
            raise NotFound(f"there is no graph {name!r} here; `graphs()` lists them")
        about: dict[str, Any] = plain(self._about[name][1])
        return about

    def each_metadata(self, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
        return ((name, self.metadata(name)) for name in self.names(run))

    def graphs(self, run: str | None = None) -> list[GraphInfo]:
        return [self._info(name) for name in self.names(run)]

    def _info(self, name: str) -> GraphInfo:
        graph, (run, metadata) = self._graphs[name], self._about[name]
        return GraphInfo(name, run, graph.tip, len(graph), len(graph.versions), len(graph.calls()), plain(metadata))

    def runs(self) -> list[RunInfo]:
        return [
            RunInfo(name, sum(run == name for run, _ in self._about.values()), plain(self._runs[name]))
            for name in sorted(self._runs)
        ]

    def save_run(self, name: str, metadata: Mapping[str, Any]) -> None:
        self._runs[check_name("run's name", name)] = plain(dict(metadata), "metadata")

    def find(self, prefix: str) -> list[Found]:
        if not prefix:
            return []
        found: dict[tuple[str, str], Found] = {}
        for place, node, message in self._places():
            for kind, name in (("node", node.hex()), ("message", message.hex())):
                if name.startswith(prefix):
                    found.setdefault((kind, name), Found(kind, name, *place))  # type: ignore[arg-type]
        return list(found.values())

    def _places(self) -> Iterator[tuple[tuple[str, tuple[int, ...], int | None, int], Id, Id]]:
        for name in sorted(self._graphs):
            for path, graph in below(self._graphs[name]):
                for version, line in own_lines(graph):
                    nodes = chain(ROOT, (m.id for m in line))
                    for i, node in enumerate(nodes):
                        yield (name, path, version, i), node, line[i].id

    def merge(self, other: Store, prefer: Prefer | None = None) -> MergeReport:
        return merge(self, other, prefer)

    def verify(self) -> list[Finding]:
        bodies = {
            (m.id, m.body)
            for top in self._graphs.values()
            for graph in top.reach()
            for _, line in own_lines(graph)
            for m in line
        }
        checks = (check_message(f"message {name.hex()}", body, name) for name, body in bodies)
        return [finding for finding in checks if finding is not None]

    def shared_events(self) -> set[object]:
        graphs = [graph for top in self._graphs.values() for graph in top.reach()]
        found = Counter(recorded.known_as for graph in graphs for recorded in graph._recorded)
        return {event for event, number in found.items() if number > 1}

    def counts(self) -> dict[str, int]:
        members = {id(g): g for top in self._graphs.values() for g in top.reach()}.values()
        lines = [line for graph in members for _, line in own_lines(graph)]
        calls = {id(recorded) for graph in members for recorded in graph._recorded}
        messages = {m.id for line in lines for m in line}
        return {"graphs": len(members), "lines": len(lines), "messages": len(messages), "calls": len(calls)}

    def close(self) -> None:
        """Nothing to finish."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def name_taken(name: str) -> str:
    """The sentence for `NameTaken`, the same in every store."""
    return (
        f"{name!r} holds another conversation, or a newer state of this one; "
        "load it and go on from there, or save under another name"
    )


def _goes_on(graph: MessageGraph, held: MessageGraph, known: Id | None, now: Id) -> bool:
    """Whether a handle, last saved as `known`, may be saved where `held` is; one never saved must say the same."""
    if known is not None:
        return fingerprint(held) == known
    mine, theirs = ([(m, m.links()) for m in children_first(top)] for top in (graph, held))
    return fingerprint(held) == now and shape(mine) == shape(theirs)


def shape(members: Iterable[tuple[MessageGraph, list[tuple[Message, MessageGraph]]]]) -> list[int]:
    """Which of `members`, given children first, each link leads to: equal subagents are not yet the same one."""
    numbers: dict[int, int] = {}
    found = []
    for number, (graph, links) in enumerate(members):
        numbers[id(graph)] = number
        found += [numbers[id(child)] for _, child in links] + [-1]
    return found


def own_lines(graph: MessageGraph) -> Iterator[tuple[int | None, list[Message]]]:
    """The lines of one graph: the current one first, then its versions."""
    yield None, graph._line
    for number, version in enumerate(graph.versions):
        yield number, version.line()


def below(graph: MessageGraph) -> list[tuple[tuple[int, ...], MessageGraph]]:
    """A graph and its subagents, each once, with the numbers of the links that lead there."""
    found: dict[int, tuple[tuple[int, ...], MessageGraph]] = {id(graph): ((), graph)}
    waiting = [((), graph)]
    while waiting:
        path, parent = waiting.pop()
        for number, (_, child) in enumerate(parent.links()):
            if id(child) not in found:
                found[id(child)] = ((*path, number), child)
                waiting.append(((*path, number), child))  # type: ignore[arg-type]
    return list(found.values())


def _snapshot(graph: MessageGraph) -> MessageGraph:
    """The graph and all below it as they are now, unknown to any store."""
    fork = graph.deep_fork()
    for member in fork.reach():
        member.marks.clear()
    return fork
