"""Tables and lists: the graphs of a store, the messages of a line. `tests/cli/test_log.py` pins how they look."""

from collections.abc import Iterator
from typing import Any

from stemma.cli.address import SHORT, Place, linked
from stemma.cli.alignment import equal_run
from stemma.cli.entry import entry
from stemma.cli.screen import Piece, pad, visible, width_of
from stemma.core.call import Call
from stemma.core.graph import MessageGraph
from stemma.core.ids import ROOT, chain
from stemma.store.protocol import GraphInfo

_COLUMNS = ("NAME", "RUN", "MESSAGES", "VERSIONS", "CALLS", "TIP")
_NUMBERS = range(2, 5)
"""Columns that are aligned at the right."""

_MOST_NAMED = 3
"""More versions than these that leave at one message are counted, not named."""


def graphs_as_dicts(graphs: list[GraphInfo]) -> list[dict[str, Any]]:
    """What `stemma log --json` says of each graph."""
    return [{field: getattr(info, field) for field in info.__struct_fields__} for info in graphs]


def graphs_as_table(graphs: list[GraphInfo]) -> Iterator[list[Piece]]:
    """A line for each graph below a line of headings."""
    cells = [_COLUMNS, *(_cells(info) for info in graphs)]
    widths = [max(width_of([row[i]]) for row in cells) for i in range(len(_COLUMNS))]
    for number, row in enumerate(cells):
        padded = [pad(cell, widths[i], right=i in _NUMBERS) + "  " for i, cell in enumerate(row[:-1])]
        yield [(cell, _style(number, i)) for i, cell in enumerate([*padded, row[-1]])]


def _cells(info: GraphInfo) -> tuple[str, ...]:
    counts = (f"{n:,}" for n in (info.messages, info.versions, info.calls))
    return visible(info.name), visible(info.run or "–"), *counts, (info.tip or "–")[:SHORT]


def _style(row: int, column: int) -> str:
    return "dim" if row == 0 or column in (1, 5) else "bold" if column == 0 else ""


def line_as_list(place: Place, width: int) -> Iterator[list[Piece]]:
    """A heading, and a line for each message."""
    graph, calls = place.graph, calls_by_node(place.graph)
    counts = (_many(len(place.line), "message"), _many(len(graph.versions), "version"), _many(_total(calls), "call"))
    yield [(place.address(), "bold"), (f" · {' · '.join(counts)}", "dim")]
    leaving, subagents = _leaving(place), linked(graph, place.graph_address)
    for index, (node, message) in enumerate(zip(place.nodes(), place.line, strict=True)):
        remarks = [*_answers_for(subagents.get(message.id, [])), *_left_here(leaving.get(index, []))]
        yield entry(node, message, calls.get(node.hex(), []), remarks, width=width)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _total(calls: dict[str, list[Call]]) -> int:
    return sum(map(len, calls.values()))


def calls_by_node(graph: MessageGraph) -> dict[str, list[Call]]:
    """The calls of a graph, by the id of the node each made."""
    found: dict[str, list[Call]] = {}
    for sampled in graph.calls():
        found.setdefault(sampled.made, []).append(sampled.call)
    return found


def _leaving(place: Place) -> dict[int, list[tuple[int, str]]]:
    """Where the versions of a graph part from a line, and why they were left."""
    found: dict[int, list[tuple[int, str]]] = {}
    for number, kept, line in place.graph._history.newest_first(place.graph._line):
        if number != place.version:
            at = equal_run(line, 0, place.line, 0)
            found.setdefault(min(at, len(place.line) - 1), []).insert(0, (number, kept.reason))
    return found


def _left_here(versions: list[tuple[int, str]]) -> list[Piece]:
    if len(versions) > _MOST_NAMED:
        return [(f"⑂ {len(versions)} versions", "blue")]
    return [(f"⑂ @{number} {reason}", "blue") for number, reason in versions]


def _answers_for(subagents: list[tuple[str, MessageGraph]]) -> list[Piece]:
    if len(subagents) > _MOST_NAMED:
        return [(f"⊃ {len(subagents)} subagents", "blue")]
    return [(f"⊃ {address}", "blue") for address, _ in subagents]


def line_as_dict(place: Place) -> dict[str, Any]:
    """What `stemma log NAME --json` says."""
    calls, subagents = calls_by_node(place.graph), linked(place.graph, place.graph_address)
    nodes = place.nodes()
    return {
        "graph": place.graph_address,
        "version": place.version,
        "tip": nodes[-1].hex() if nodes else None,
        "messages": [
            {
                "index": index,
                "node": node.hex(),
                "message": message.id.hex(),
                "role": message.role,
                "content": message.get("content"),
                "tool_calls": message.get("tool_calls") or [],
                "sampled_by": [call.model for call in calls.get(node.hex(), [])],
                "subagents": [address for address, _ in subagents.get(message.id, [])],
            }
            for index, (node, message) in enumerate(zip(nodes, place.line, strict=True))
        ],
        "versions": _versions(place),
    }


def _versions(place: Place) -> list[dict[str, Any]]:
    graph = place.graph
    found = [
        {
            "version": number,
            "reason": kept.reason,
            "index": kept.index,
            "replaced": kept.replaced,
            "replacement": len(kept.replacement),
            "messages": len(line),
            "tip": chain(ROOT, (m.id for m in line))[-1].hex(),
        }
        for number, kept, line in graph._history.newest_first(graph._line)
    ]
    return found[::-1]
