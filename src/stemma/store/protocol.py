"""What every store can do. `MemoryStore` is the reference, `SQLiteStore` the one that survives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol, Self

import msgspec

from stemma.core.fresh import Fresh
from stemma.core.graph import MessageGraph
from stemma.core.verify import Finding


class GraphInfo(msgspec.Struct, frozen=True):
    """A named graph in a list of them."""

    name: str
    run: str | None
    tip: str | None
    """The id of its last node; None while it is empty."""
    messages: int
    """The length of its current line."""
    versions: int
    calls: int
    metadata: dict[str, Any]


class RunInfo(msgspec.Struct, frozen=True):
    """A named collection of graphs."""

    name: str
    graphs: int
    metadata: dict[str, Any]


class Found(msgspec.Struct, frozen=True):
    """A place that an id names."""

    kind: Literal["node", "message"]
    id: str
    graph: str
    """The name of a graph whose line (or whose subagent's line) goes through it."""
    path: tuple[int, ...]
    """Which graph below that one: the numbers of the links to follow; empty for the named graph itself."""
    version: int | None
    """Which of its lines; None for the current one."""
    index: int
    """Where in the line."""


class Conflict(msgspec.Struct, frozen=True):
    """One key of the metadata of a graph or run that is another in the other store."""

    name: str
    """The graph's; `run NAME` for a run's."""
    key: str
    here: Any
    there: Any


class MergeReport(msgspec.Struct, frozen=True):
    """What `merge` did."""

    added: list[str]
    """Names of graphs taken in."""
    same: list[str]
    """Names of graphs that were here already."""
    renamed: dict[str, str]
    """Graphs whose name held another conversation here: their name there, and the one they got."""
    updated: list[str] = []
    """Names of graphs that were here and got metadata from there, such as a reward."""
    conflicts: "list[Conflict]" = []
    """What both have and say otherwise; nothing of it was changed here."""


Prefer = Literal["here", "there"]
"""Whose metadata counts where two stores differ."""

Prepared = Callable[[Any], None]
"""A save that is not made yet; what it is given is the store's own affair."""


class Store(Protocol):
    """A place where graphs are kept."""

    def save(
        self,
        graph: MessageGraph,
        name: str,
        *,
        run: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the graph under `name`, wholly or not at all; only what is new is written.

        `run` and `metadata` stay as they were when not given. A name that holds another conversation, or a
        newer state of this one, raises `NameTaken`.
        """
        ...

    def save_soon(
        self,
        graph: MessageGraph,
        name: str,
        *,
        run: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> "Future[None]":
        """The same without waiting: the graph is saved as it is now, and the future is done when it is on disk."""
        ...

    def prepare(
        self,
        graph: MessageGraph | Fresh,
        name: str,
        *,
        run: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Prepared:
        """The graph as it is now, or a conversation that was laid out elsewhere, for a later `write`."""
        ...

    def write(self, prepared: Sequence[Prepared]) -> None:
        """Write several in one transaction and in this thread; on disk when it returns. The first failure rises.

        Where many saves come at once, this costs half of what the thread behind `save_soon` does: in Python two busy
        threads mostly wait for one another.
        """
        ...

    def load(self, name: str) -> MessageGraph:
        """The graph with all versions, calls and subagents, or `NotFound`."""
        ...

    def names(self, run: str | None = None) -> list[str]:
        """The names of the graphs, sorted; of one run if given."""
        ...

    def metadata(self, name: str) -> dict[str, Any]:
        """What was saved with a graph, or `NotFound`."""
        ...

    def each_metadata(self, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name and metadata of every graph of a run, by name, one at a time; what is saved meanwhile may be there."""
        ...

    def graphs(self, run: str | None = None) -> list[GraphInfo]:
        """The named graphs, by name; of one run if given."""
        ...

    def runs(self) -> list[RunInfo]:
        """The runs, by name."""
        ...

    def save_run(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Keep metadata of a run, making it if it is new."""
        ...

    def find(self, prefix: str) -> list[Found]:
        """Every node and message whose id begins with `prefix`, each with one place where it stands."""
        ...

    def merge(self, other: "Store", prefer: "Prefer | None" = None) -> MergeReport:
        """Take in all graphs of another store; merging twice changes nothing.

        Metadata is put together key by key. Where both stores say something else, this one's value stays and the
        conflict is reported, unless `prefer` says whose value counts.
        """
        ...

    def verify(self) -> list[Finding]:
        """Derive every id again; what is returned is wrong."""
        ...

    def shared_events(self) -> set[object]:
        """`MessageGraph.events` of those calls that stand in several graphs, as they do when forks are saved."""
        ...

    def counts(self) -> dict[str, int]:
        """How much is kept, subagents' and superseded records included: graphs, lines, messages, calls."""
        ...

    def close(self) -> None:
        """Finish writing and let go."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
