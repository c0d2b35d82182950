"""What a graph says in all, as one hash: its line, versions, calls and subagents.

Two graphs with one fingerprint are the same conversation with the same past. Facts are hashed one after another
(`roll`), so a store can carry the hash along as a graph grows. `tests/store/test_store_machine.py` uses it to show
that what is loaded is what was saved.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stemma.core.editing import Recorded
from stemma.core.history import Kept
from stemma.core.ids import ROOT, Id, chain, digest
from stemma.errors import BadLink

if TYPE_CHECKING:
    from stemma.core.graph import MessageGraph

START: Id = digest("facts")
"""The hash of no facts."""


def roll(before: Id, facts: Iterable[Id]) -> Id:
    """The hash of all facts before and these."""
    for fact in facts:
        before = digest("facts", before, fact)
    return before


def version_fact(tip: Id, index: int, reason: str, replaced: int, replacement: list[Id], calls: Iterable[int]) -> Id:
    """That a line was superseded."""
    numbers = ",".join(map(str, calls))
    return digest("version", tip, f"{index} {replaced} {numbers}".encode(), reason.encode(), *replacement)


def call_fact(call: Id, at: int) -> Id:
    """That a call was recorded."""
    return digest("placed", call, str(at).encode())


def link_fact(message: Id, child: bytes) -> Id:
    """That a tool result contains a subagent's conversation."""
    return digest("contains", message, child)


def kept_fact(kept: Kept, tip: Id) -> Id:
    """`version_fact` of a version in memory."""
    replacement = [m.id for m in kept.replacement]
    return version_fact(tip, kept.index, kept.reason, kept.replaced, replacement, kept.calls)


def fingerprint(graph: "MessageGraph") -> Id:
    """The hash of all a graph says."""
    known: dict[int, Id] = {}
    for member in children_first(graph):
        known[id(member)] = _own_fingerprint(member, known)
    return known[id(graph)]


def _own_fingerprint(graph: "MessageGraph", known: dict[int, Id]) -> Id:
    graph._settle()
    history = graph._history
    tips = [chain(ROOT, (m.id for m in line))[-1] for _, _, line in history.newest_first(graph._line)]
    versions = list(zip(history.kept, reversed(tips), strict=True))
    links = [(message.id, known[id(child)]) for message, child in graph.links()]
    return combine(graph.node_ids()[-1] if graph._line else ROOT, versions, graph._recorded, links)


def combine(
    tip: Id, versions: list[tuple[Kept, Id]], recorded: Iterable[Recorded], links: Iterable[tuple[Id, Id]]
) -> Id:
    """The fingerprint from its parts: the tip, each version with its tip, the calls, each link with the child's."""
    return digest(
        "graph",
        tip,
        roll(START, (kept_fact(kept, left) for kept, left in versions)),
        roll(START, (call_fact(digest("call", *one.call.parts()), one.at) for one in recorded)),
        roll(START, (link_fact(message, child) for message, child in links)),
    )


def children_first(graph: "MessageGraph") -> "list[MessageGraph]":
    """Every graph below `graph`, each after all that it contains; `BadLink` if one contains itself."""
    if not graph._links:
        return [graph]
    done: dict[int, MessageGraph] = {}
    entered: set[int] = set()
    waiting = [graph]
    while waiting:
        top = waiting[-1]
        missing = [child for _, child in top.links() if id(child) not in done]
        if not missing:
            done.setdefault(id(waiting.pop()), top)
        elif id(top) in entered:  # all below it was gone through, and some of it is still not done
            raise BadLink("a conversation contains itself, directly or through its subagents")
        else:
            entered.add(id(top))
            waiting += missing
    return list(done.values())
