"""What is measured without a store: appending and editing, in busy seconds; a crowded machine adds nothing to them."""

import random
import tracemalloc
from itertools import count
from statistics import median

from conversations import Message, alternating, call, text
from measure import Values, timed
from naive import NaiveGraph
from stemma import Call, MessageGraph

LENGTH = 1_000
"""Messages of a line that is edited; the same in a quick run, which only edits less often."""

_fresh = count(10_000_000)


def appends(scale: int) -> Values:
    """Messages a second, through `append` and as recorded replies."""
    messages = alternating(200_000 // scale)
    replies = [m for m in messages if m["role"] == "assistant"][: 20_000 // scale]
    calls = [call(i) for i in range(len(replies))]
    return {
        "append": len(messages) / median(_append_all(messages) for _ in range(5)),
        "record": len(replies) / median(_record_all(replies, calls) for _ in range(5)),
    }


def _append_all(messages: list[Message]) -> float:
    graph = MessageGraph()
    with timed() as watch:
        for message in messages:
            graph.append(message)
    return watch.busy


def _record_all(replies: list[Message], calls: list[Call]) -> float:
    graph = MessageGraph()
    with timed() as watch:
        for reply, sampled in zip(replies, calls, strict=True):
            graph.record(reply, sampled)
    return watch.busy


def edits_against_naive(scale: int) -> Values:
    """An edit of message 0 and a reply, by our class and by the naive one; dicts and calls are made beforehand."""
    many = max(100 // scale, 10)
    first = [_naive(1) / _ours(1) for _ in range(51)]
    ours, with_ids = _median_of(5, many), _median_of(5, many, ids=True)
    few, more = min(_ours(200) for _ in range(15)), min(_ours(2_000) for _ in range(7))
    naive = _naive(many)
    return {
        "first": median(first),
        "many": naive / ours,
        "many_with_ids": naive / with_ids,
        "one_edit": ours / many * 1e6,
        "growth": more / few,
    }


def _median_of(repeats: int, edits: int, *, ids: bool = False) -> float:
    return median(_ours(edits, ids=ids) for _ in range(repeats))


def _ours(edits: int, *, ids: bool = False) -> float:
    """Seconds for so many edits, each with a recorded reply; with `ids` the node of the reply is named each time."""
    graph = MessageGraph(alternating(LENGTH))
    heads, replies, calls = _heads(edits), _replies(edits), [call(i) for i in range(edits)]
    with timed() as watch:
        for head, reply, sampled in zip(heads, replies, calls, strict=True):
            graph[0] = head
            graph.record(reply, sampled)
            if ids:
                assert graph.tip
    assert len(graph.versions) == edits
    return watch.busy


def _naive(edits: int) -> float:
    graph = NaiveGraph()
    for message in alternating(LENGTH):
        graph.append(message)
    heads, replies = _heads(edits), _replies(edits)
    with timed() as watch:
        for head, reply in zip(heads, replies, strict=True):
            graph[0] = head
            graph.append(reply)
    return watch.busy


def _heads(edits: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": text(next(_fresh))} for _ in range(edits)]


def _replies(edits: int) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text(next(_fresh))} for _ in range(edits)]


def many_edits(scale: int) -> Values:
    """Ten thousand edits at random places of a line, each of which breaks a prefix."""
    edits = 10_000 // scale
    seconds = median(_edit_at_random(_sampled_line(), edits) for _ in range(3))
    graph = _sampled_line()
    tracemalloc.start()
    _edit_at_random(graph, edits)
    held, _ = tracemalloc.get_traced_memory()
    return {"seconds": seconds, "bytes_each": held / edits}


def _sampled_line() -> MessageGraph:
    graph = MessageGraph()
    for message in alternating(LENGTH):
        if message["role"] == "assistant":
            graph.record(message, call(0))
        else:
            graph.append(message)
    return graph


def _edit_at_random(graph: MessageGraph, edits: int) -> float:
    chance = random.Random(3)
    places = [chance.randrange(LENGTH - 1) for _ in range(edits)]  # the last place but one holds the last reply
    with timed() as watch:
        for place in places:
            graph[place]["content"] = text(next(_fresh))
    assert len(graph.versions) == edits
    return watch.busy
