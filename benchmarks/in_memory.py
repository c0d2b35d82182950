"""What is measured without a store: appending and editing."""

import gc
import random
import tracemalloc
from itertools import count

from conversations import alternating, call, text
from measure import Values, median_time, timed
from naive import NaiveGraph

from stemma import MessageGraph

LENGTH = 1_000
"""Messages of a line that is edited; the same in a quick run, which only edits less often."""

_fresh = count(10_000_000)


def appends(scale: int) -> Values:
    """Messages a second, through `append` and as recorded replies."""
    messages = alternating(200_000 // scale)
    replies = [m for m in messages if m["role"] == "assistant"]
    calls = [call(i) for i in range(len(replies))]

    def append_all() -> None:
        graph = MessageGraph()
        for message in messages:
            graph.append(message)

    def record_all() -> None:
        graph = MessageGraph()
        for message, sampled in zip(replies, calls, strict=True):
            graph.record(message, sampled)

    return {
        "append": len(messages) / median_time(append_all, 5),
        "record": len(replies) / median_time(record_all, 5),
    }


def edits_against_naive(scale: int) -> Values:
    """An edit of message 0 and a reply, by our class and by the naive one."""
    many, times = max(100 // scale, 10), 15
    first, naive_first = _ours(1, times), _naive(1, times)
    ours, named, naive = _ours(many, 3), _ours_with_ids(many, 3), _naive(many, 1)
    few, more = _ours(200 // scale, 5), _ours(2_000 // scale, 5)
    return {
        "first": naive_first / first,
        "many": naive / ours,
        "many_with_ids": naive / named,
        "one_edit": ours / many * 1e6,
        "growth": more / few,
    }


def _ours(edits: int, repeats: int) -> float:
    return _median([_time_ours(edits, ids=False) for _ in range(repeats)])


def _ours_with_ids(edits: int, repeats: int) -> float:
    return _median([_time_ours(edits, ids=True) for _ in range(repeats)])


def _naive(edits: int, repeats: int) -> float:
    return _median([_time_naive(edits) for _ in range(repeats)])


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _time_ours(edits: int, *, ids: bool) -> float:
    graph, heads = MessageGraph(alternating(LENGTH)), [text(next(_fresh)) for _ in range(edits)]
    replies = [{"role": "assistant", "content": text(next(_fresh))} for _ in range(edits)]
    gc.collect()
    with timed() as watch:
        for head, reply in zip(heads, replies, strict=True):
            graph[0]["content"] = head
            graph.record(reply, call(0))
            if ids:
                assert graph.tip
    assert len(graph.versions) == edits
    return watch.seconds


def _time_naive(edits: int) -> float:
    graph = NaiveGraph()
    for message in alternating(LENGTH):
        graph.append(message)
    heads = [{"role": "system", "content": text(next(_fresh))} for _ in range(edits)]
    replies = [{"role": "assistant", "content": text(next(_fresh))} for _ in range(edits)]
    gc.collect()
    with timed() as watch:
        for head, reply in zip(heads, replies, strict=True):
            graph[0] = head
            graph.append(reply)
    return watch.seconds


def many_edits(scale: int) -> Values:
    """Ten thousand edits at random places of a line, each of which breaks a prefix."""
    edits = 10_000 // scale
    seconds = median_time(lambda: _edit_at_random(edits), 3)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    graph = _edit_at_random(edits)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    bare = LENGTH * 300  # what the unedited line takes, roughly; small beside the rest
    return {"seconds": seconds, "bytes_each": (grown - bare) / len(graph.versions)}


def _edit_at_random(edits: int) -> MessageGraph:
    chance, graph = random.Random(3), MessageGraph()
    for message in alternating(LENGTH):
        if message["role"] == "assistant":
            graph.record(message, call(0))
        else:
            graph.append(message)
    graph.record({"role": "assistant", "content": "the last word"}, call(1))
    for _ in range(edits):
        graph[chance.randrange(len(graph))]["content"] = text(next(_fresh))
    assert len(graph.versions) == edits
    return graph
