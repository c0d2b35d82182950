"""A graph drawn in lanes, as `git log --graph` does, oldest message first.

The current line keeps the first lane. Where lines part, every other one is drawn to its end in a lane of its own
before the lane goes on; off the current line, the part with the most lines goes on, so that a lane for each doubling
of the number of versions is the most that is ever open. A subagent's conversation is drawn after the tool result
that carries its answer. Each row is made once, nothing recurses, and the rows are linear in messages, edits and calls.
`tests/cli/test_lanes.py` pins small drawings and counts the rows of large ones.

    ○ S
    ├─╮ @0 edit
    │ ○ U            was edited after A was sampled from it
    │ ● A
    ○ U'
    ● A'
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from stemma.cli.address import linked
from stemma.cli.tree import Branch, grow
from stemma.core.graph import MessageGraph
from stemma.core.ids import Id

Kind = Literal["node", "fork", "onward", "rest", "fold", "subagent", "again"]
"""node: a message; fork: a lane opens for a line that was left; onward: this lane goes on as that line; rest: a lane
opens for what is left of the line before `onward`; fold: messages not shown; subagent: a lane opens for its
conversation; again: a subagent's conversation that was drawn above."""


@dataclass(eq=False, slots=True)
class Member:
    """A graph of the drawing: the one asked for, or a subagent's."""

    address: str
    """Its name, and the numbers of the links that lead to it."""
    graph: MessageGraph
    trunk: Branch
    links: dict[Id, list[tuple[str, MessageGraph]]]
    """Subagents' addresses and graphs, by the id of the tool result."""

    @classmethod
    def of(cls, address: str, graph: MessageGraph) -> "Member":
        """The member called `address`."""
        return cls(address, graph, grow(graph), linked(graph, address))


class Row(msgspec.Struct, frozen=True):
    """One line of the drawing."""

    kind: Kind
    member: Member
    branch: Branch
    index: int
    """Of the message, or of the first one folded away."""
    count: int = 0
    """How many messages are folded away, or how many a subagent's conversation has."""
    goes_on: bool = True
    """Whether the lane has more rows below this one."""
    address: str = ""
    """Of the subagent."""
    lanes: tuple[bool, ...] = ()
    """For each lane left of this one, whether it has more rows below."""


class Lane(NamedTuple):
    """A lane to be drawn to its end before the one that opened it goes on."""

    rows: "Iterator[Row | Lane]"
    goes_on: bool
    """Whether the opening lane does."""


def rows(graph: MessageGraph, address: str) -> Iterator[Row]:
    """The drawing of a graph, from the top."""
    drawing = _Drawing()
    open_lanes, lanes = [drawing.lane(Member.of(address, graph))], tuple[bool, ...]()
    while open_lanes:
        step = next(open_lanes[-1], None)
        if step is None:
            open_lanes.pop()
            lanes = lanes[:-1]
        elif isinstance(step, Lane):
            open_lanes.append(step.rows)
            lanes = (*lanes, step.goes_on)
        else:
            yield msgspec.structs.replace(step, lanes=lanes)


class _Drawing:
    def __init__(self) -> None:
        self.drawn: dict[int, MessageGraph] = {}
        """Subagents drawn so far, by identity; several tool results may carry one conversation."""

    def lane(self, member: Member) -> Iterator[Row | Lane]:
        """All lines of a graph; last, subagents whose tool result stands on none of them."""
        trunk = member.trunk
        if 0 not in trunk.forks or (yield from self.fork(member, trunk, 0)):
            yield from self.follow(member, trunk, 0)
        for children in member.links.values():
            hidden = [link for link in children if id(link[1]) not in self.drawn]
            yield from self.subagents(member, trunk, trunk.stop, hidden, goes_on=False)

    def follow(self, member: Member, branch: Branch | None, since: int) -> Iterator[Row | Lane]:
        """A branch from index `since`, then whatever its lane goes on as."""
        while branch is not None:
            branch = yield from self.stretch(member, branch, since)
            since = 0

    def stretch(self, member: Member, branch: Branch, since: int) -> Generator[Row | Lane, None, Branch | None]:
        """A branch up to where its lane goes on as another one, which is returned, or to its end."""
        for start, stop, folded in branch.stretches(since):
            if folded:
                yield Row("fold", member, branch, start, stop - start)
            else:
                yield Row("node", member, branch, start)
                children = member.links.get(branch.message(start).id, [])
                yield from self.subagents(member, branch, start, children, goes_on=stop < branch.stop)
            if stop in branch.forks:
                onward = yield from self.fork(member, branch, stop)
                if onward is not branch:
                    return onward
        return None

    def fork(self, member: Member, branch: Branch, at: int) -> Generator[Row | Lane, None, Branch | None]:
        """Draw all but one of the lines that part before index `at`; that one is returned."""
        parts = [*([branch] if at < branch.stop else []), *reversed(branch.leaving(at))]
        onward = _onward(parts, branch, at)
        aside = [part for part in reversed(parts) if part is not onward]
        for part in aside:
            goes_on = onward is not None or part is not aside[-1]
            yield Row("rest" if part is branch else "fork", member, part, at, goes_on=goes_on)
            yield Lane(self.follow(member, part, at), goes_on)
        if onward is not None and onward is not branch:
            yield Row("onward", member, onward, at)
        return onward

    def subagents(
        self, member: Member, branch: Branch, index: int, children: list[tuple[str, MessageGraph]], *, goes_on: bool
    ) -> Iterator[Row | Lane]:
        """The conversations that a tool result answers for."""
        for address, child in children:
            lasts = goes_on or child is not children[-1][1]
            again = id(child) in self.drawn
            yield Row("again" if again else "subagent", member, branch, index, len(child), lasts, address)
            if not again:
                self.drawn[id(child)] = child
                yield Lane(self.lane(Member.of(address, child)), lasts)


def _onward(parts: list[Branch], branch: Branch, at: int) -> Branch | None:
    """Which of the parts the lane goes on as: the rest of the current line, else the one with the most lines."""
    if branch.parent is None:
        return branch if branch in parts else None
    return max(parts, key=lambda part: part.lines if part is not branch else _lines_from(branch, at))


def _lines_from(branch: Branch, at: int) -> int:
    """How many lines end on a branch from index `at` on, or on branches that leave it after that."""
    leaving = sum(other.lines for start, others in branch.forks.items() if start > at for other in others.values())
    return leaving + sum(len(versions) for index, versions in branch.ends.items() if index >= at)
