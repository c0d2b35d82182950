"""The lines of one graph as a tree: what lines share is there once, and a line owns what no newer line has.

    S  U  A  V  B     the current line    the trunk: S U A V B
    S  U' A           @1, U was edited    a branch that leaves the trunk at 1: U' A
    S  U  A           @0                  nothing of its own: it ends on the trunk, at A

A branch repeats, after what was edited, messages that stand unchanged on the line that replaced it. Those are folded
away, but for those a model call made; so 500 edits of the head of a long conversation are some 1,500 rows to draw, not
500 conversations. Lines are compared in slices, ids are derived only for nodes that are
shown, nothing recurses. `tests/cli/test_tree.py` compares it with the plain set of all nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from stemma.cli.alignment import equal_run
from stemma.core.call import Call
from stemma.core.graph import MessageGraph
from stemma.core.history import Kept
from stemma.core.ids import ROOT, Id, chain
from stemma.core.message import Message

SHORTEST_FOLD = 3
"""Fewer messages than this take no more room than the sentence that would stand for them."""


@dataclass(eq=False, slots=True)
class Branch:
    """A line from where it leaves a newer one."""

    version: int | None
    """Which line; None is the current one."""
    start: int
    """The index of its first own message."""
    own: list[Message]
    parent: "Branch | None" = None
    """None for the trunk."""
    kept: Kept | None = None
    """How it came to be left; None for the trunk."""
    heir: "Branch | None" = None
    """Where the line that replaced it ends; None for the trunk."""
    repeats: range = range(0)
    """Indices of the messages that stand unchanged on the line that replaced it."""
    forks: dict[int, "dict[Id, Branch]"] = field(default_factory=dict)
    """Branches that leave this one: by the index of their first message, and by its id."""
    ends: dict[int, list[int]] = field(default_factory=dict)
    """Versions whose whole line ends here, by index."""
    calls: dict[int, list[Call]] = field(default_factory=dict)
    """What sampled the message at an index; a message without any is context."""
    nodes: dict[int, Id] = field(default_factory=dict)
    """Ids of the nodes that are shown."""
    lines: int = 0
    """How many lines end here or on a branch of it."""

    @property
    def stop(self) -> int:
        """The index after its last message."""
        return self.start + len(self.own)

    def message(self, index: int) -> Message:
        """The message at an index of the line."""
        return self.own[index - self.start]

    def leaving(self, index: int) -> "list[Branch]":
        """The branches that leave before the message at `index`, oldest first."""
        return sorted(self.forks.get(index, {}).values(), key=lambda branch: branch.version or 0)

    def stretches(self, since: int = 0) -> "Iterator[Stretch]":
        """The branch from index `since` in pieces: a message each, or messages folded away, with no fork inside."""
        at = max(self.start, since)
        for fold in self._folds():
            if fold.stop <= at:
                continue
            yield from (Stretch(i, i + 1, folded=False) for i in range(at, fold.start))
            at = max(at, fold.start)
            cuts = sorted(start for start in self.forks if at < start < fold.stop)
            yield from (Stretch(i, j, folded=True) for i, j in pairwise([at, *cuts, fold.stop]))
            at = fold.stop
        yield from (Stretch(i, i + 1, folded=False) for i in range(at, self.stop))

    def _folds(self) -> Iterator[range]:
        repeats = range(max(self.repeats.start, self.start), self.repeats.stop)
        sampled = [i for i in sorted(self.calls) if i in repeats]
        for before, after in pairwise([repeats.start - 1, *sampled, repeats.stop]):
            if after - before > SHORTEST_FOLD:
                yield range(before + 1, after)

    def at(self, index: int) -> "Branch":
        """The branch on which the message at `index` of this line stands: this one, or one that it left."""
        branch = self
        while index < branch.start and branch.parent is not None:
            branch = branch.parent
        return branch


class Stretch(NamedTuple):
    """A piece of a branch."""

    start: int
    stop: int
    """The index after its last message."""
    folded: bool
    """Whether its messages are not shown; if they are, it is one."""


def grow(graph: MessageGraph) -> Branch:
    """The tree of a graph's own lines; returns its trunk."""
    trunk = Branch(None, 0, graph._line.copy())
    branches, homes = [trunk], {len(graph._history.kept): trunk}
    newer = trunk.own
    for number, kept, line in graph._history.newest_first(graph._line):
        home, start = _where_it_leaves(trunk, line)
        if start < len(line):
            repeats = _repeats(kept, line, newer)
            home = Branch(number, start, line[start:], home, kept, homes[number + 1], repeats)
            branches.append(home)
            _attach(home)
        home.ends.setdefault(len(line) - 1, []).append(number)
        homes[number] = home
        newer = line
    _place_calls(graph, homes)
    _count_lines(branches)
    _name_nodes(graph, branches)
    return trunk


def _where_it_leaves(trunk: Branch, line: list[Message]) -> tuple[Branch, int]:
    """The branch that a line follows longest, and the index of the first message it does not share."""
    branch, at = trunk, 0
    while True:
        at += equal_run(branch.own, at - branch.start, line, at)
        onward = branch.forks.get(at, {}).get(line[at].id) if at < len(line) else None
        if onward is None:
            return branch, at
        branch = onward


def _repeats(kept: Kept, line: list[Message], newer: list[Message]) -> range:
    first = kept.index + kept.replaced
    return range(first, first + equal_run(line, first, newer, kept.index + len(kept.replacement)))


def _attach(branch: Branch) -> None:
    if branch.parent is not None:
        branch.parent.forks.setdefault(branch.start, {})[branch.own[0].id] = branch


def _place_calls(graph: MessageGraph, homes: dict[int, Branch]) -> None:
    """Note each call at the node it made, which may stand on a newer line that shares it."""
    for sampled in graph.calls():
        home = homes[len(graph._history.kept) if sampled.version is None else sampled.version]
        branch = home.at(sampled.index)
        branch.calls.setdefault(sampled.index, []).append(sampled.call)
        branch.nodes[sampled.index] = bytes.fromhex(sampled.made)


def _count_lines(branches: list[Branch]) -> None:
    for branch in reversed(branches):  # a branch stands behind the one it leaves
        branch.lines += sum(map(len, branch.ends.values()))
        if branch.parent is not None:
            branch.parent.lines += branch.lines


def _name_nodes(graph: MessageGraph, branches: list[Branch]) -> None:
    """Derive the ids of what is shown, each branch in one pass from the node it leaves."""
    branches[0].nodes = dict(enumerate(graph.node_ids()))
    for branch in branches[1:]:
        assert branch.parent is not None
        at, before = branch.start, branch.parent.nodes[branch.start - 1] if branch.start else ROOT
        for index in _named(branch):
            if index not in branch.nodes:
                steps = branch.own[at - branch.start : index + 1 - branch.start]
                branch.nodes[index] = chain(before, (m.id for m in steps))[-1]
            at, before = index + 1, branch.nodes[index]


def _named(branch: Branch) -> list[int]:
    """The indices whose nodes are shown, or left by a branch."""
    shown = (stretch.start for stretch in branch.stretches() if not stretch.folded)
    return sorted({*shown, *(start - 1 for start in branch.forks)})
