"""Training rows at the level of messages: the fewest lines that train every sampled message exactly once.

A row is a line cut after its last trained message; the rest of it is context. Two calls fit into one row when one's
reply stands in the other's context and both were offered the same tools. Replies then form a forest, ordered by
"stands in the context of", and the fewest rows are the fewest chains that cover it: going from the deepest reply
upwards, each takes one chain that has arrived from below, or starts a row of its own.

    S U A1 U A2           two calls, one line               → 1 row  (A1, A2)
    S U A1 | S U' A1 U A2 U edited after A1 was sampled     → 2 rows (A1) (A2; its A1 is context)
    S U A1 ┬ U A2         two replies were sampled after A1 → 2 rows (A1, A2) (A3; A1 is trained in the first)
           └ U A3

Two calls that made the same message are two events: each is trained, in rows of their own. A call that says
`delivered: False` or `trainable: False` in its `extra` is trained in none (`core/exclusions.py`).
`tests/core/test_rows.py` checks the number of rows against brute force.
"""

from collections.abc import Callable, Container, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec

from stemma.core.call import Call, encode_tools
from stemma.core.exclusions import refused
from stemma.core.ids import ROOT, Id, chain
from stemma.core.message import Message

if TYPE_CHECKING:
    from stemma.core.graph import MessageGraph


class Sampled(msgspec.Struct, frozen=True):
    """A recorded call with what it saw and what it made."""

    call: Call
    saw: str | None
    """The id of the last node of its context; None if that was empty."""
    made: str
    """The id of the node of its reply."""
    index: int
    """Where its reply stands in its line."""
    version: int | None
    """Which version that line is; None for the current one."""


class Row(msgspec.Struct, frozen=True):
    """One line to train on."""

    messages: list[dict[str, Any]]
    """Plain API dicts, the last of them trained."""
    trained: tuple[int, ...]
    """Which of them are trained; all others are context."""
    calls: tuple[Call, ...]
    """The call behind each trained message."""
    tools: list[dict[str, Any]] | None
    """The tools that were offered in all of those calls."""
    tip: str
    """The id of the last node."""


class Reply(msgspec.Struct, frozen=True, eq=False):
    """A sampled message on its line."""

    number: int
    """Which of the graph's recorded calls made it."""
    call: Call
    event: bytes | None
    """What tells the call from one alike in everything; None before it is saved."""
    at: int
    """Its place in the line."""
    version: int | None
    nodes: list[Id]
    line: list[Message]


def replies(graph: "MessageGraph") -> list[Reply]:
    """The sampled messages on the graph's own lines, in the order recorded; the graph stays as it is."""
    with graph._as_if_settled():
        found = [_reply(graph, n, None, graph.node_ids(), graph._line) for n in graph._live]
        for version, kept, line in graph._history.newest_first(graph._line):
            nodes = chain(ROOT, (m.id for m in line)) if kept.calls else []
            found += [_reply(graph, n, version, nodes, line) for n in kept.calls]
    return sorted(found, key=lambda reply: reply.number)


def _reply(graph: "MessageGraph", n: int, version: int | None, nodes: list[Id], line: list[Message]) -> Reply:
    recorded = graph._recorded[n]
    return Reply(n, recorded.call, recorded.event, recorded.at, version, nodes, line)


def sampled(graph: "MessageGraph") -> list[Sampled]:
    """The same, for a reader."""
    return [
        Sampled(
            call=copy(reply.call),
            saw=reply.nodes[reply.at - 1].hex() if reply.at else None,
            made=reply.nodes[reply.at].hex(),
            index=reply.at,
            version=reply.version,
        )
        for reply in replies(graph)
    ]


WhyNot = Callable[[Call], tuple[str, str] | None]
"""The reason why a call is not trained, and a detail; None if it is."""


class Plan(msgspec.Struct, frozen=True):
    """Every reply of a graph and of all subagents below it, trained or not."""

    chains: list[list[Reply]]
    """The replies that each row trains, the last one first."""
    excluded: list[tuple[Reply, str, str]]
    """Those that no row trains, each with its reason and a detail."""


def rows(graph: "MessageGraph", but: Container[object] = ()) -> list[Row]:
    """The rows of a graph and of all subagents below it; `but` are events of calls that are trained elsewhere."""
    return [_row(chain) for chain in plan(graph, but, refused).chains]


def plan(graph: "MessageGraph", but: Container[object], why_not: WhyNot) -> Plan:
    """The fewest rows that train each reply once, but for those that `why_not` gives a reason for."""
    by_tools: dict[bytes, list[Reply]] = {}
    excluded: list[tuple[Reply, str, str]] = []
    for reply in _each_once(graph, but):
        if why := why_not(reply.call):
            excluded.append((reply, *why))
        else:
            by_tools.setdefault(encode_tools(reply.call.tools), []).append(reply)
    return Plan([chain for group in by_tools.values() for chain in _fewest_chains(group)], excluded)


def _each_once(graph: "MessageGraph", but: Container[object]) -> Iterator[Reply]:
    """Every sampled message, also where forks of one graph meet as its subagents."""
    seen: set[object] = set()
    for member in graph.reach():
        for reply in replies(member):
            event = member._recorded[reply.number].known_as
            if event not in seen and event not in but:
                seen.add(event)
                yield reply


def events(graph: "MessageGraph") -> set[object]:
    """What tells each call of a graph and of all below it from all others."""
    return {recorded.known_as for member in graph.reach() for recorded in member._recorded}


def _fewest_chains(group: list[Reply]) -> list[list[Reply]]:
    """Chains, each from its deepest reply upwards, that hold every reply once."""
    made: dict[Id, list[Reply]] = {}
    for reply in group:
        made.setdefault(reply.nodes[reply.at], []).append(reply)
    arrived: dict[Id, list[list[Reply]]] = {}
    done: list[list[Reply]] = []
    for node, twins in sorted(made.items(), key=lambda item: -item[1][0].at):
        chains = arrived.pop(node, [])
        for i, reply in enumerate(twins):
            if i < len(chains):
                chains[i].append(reply)
            else:
                chains.append([reply])
        above = _reply_above(twins[0], made)
        if above is None:
            done += chains
        else:
            _pour(chains, arrived, above)
    order = {id(reply): i for i, reply in enumerate(group)}
    return sorted(done, key=lambda chain: order[id(chain[-1])])


def _reply_above(reply: Reply, made: dict[Id, list[Reply]]) -> Id | None:
    """The nearest node in the reply's context that was itself sampled."""
    nodes = reply.nodes
    return next((nodes[i] for i in range(reply.at - 1, -1, -1) if nodes[i] in made), None)


def _pour(chains: list[list[Reply]], arrived: dict[Id, list[list[Reply]]], node: Id) -> None:
    """Bring `chains` to `node`, always moving the smaller heap."""
    there = arrived.setdefault(node, chains)
    if there is chains:
        return
    large, small = (there, chains) if len(there) >= len(chains) else (chains, there)
    large += small
    arrived[node] = large


def _row(chain: list[Reply]) -> Row:
    last, calls = chain[0], chain[::-1]
    return Row(
        messages=[m.to_dict() for m in last.line[: last.at + 1]],
        trained=tuple(reply.at for reply in calls),
        calls=tuple(copy(reply.call) for reply in calls),
        tools=copy(last.call).tools,
        tip=last.nodes[last.at].hex(),
    )
