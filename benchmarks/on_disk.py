"""What is measured with a SQLite store: long lines, heads that change, a million nodes, many savers."""

import gc
import os
import random
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from conversations import alternating, call, grow, text
from measure import Stopwatch, Values, both, peak_mib, timed
from stemma import MessageGraph, Store, open_store

IN_FLIGHT = 512
"""Saves that wait for the disk at one moment: enough for group commit, few enough for memory."""


@contextmanager
def _new_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stemma-bench-") as folder:
        yield Path(folder) / "stemma.db"


# ── one line of a hundred thousand messages ──────────────────────────────────────────────────────────────────────


def long_line(scale: int) -> Values:
    """Append, save, load, edit the head, save again; all of it in one process, everything still held."""
    return _long_line(100_000 // scale, sampled=False)


def long_sampled_line(scale: int) -> Values:
    """The same with a recorded call behind every assistant message."""
    return _long_line(100_000 // scale, sampled=True)


def _long_line(length: int, *, sampled: bool) -> Values:
    messages = alternating(length)
    sys.setrecursionlimit(200)
    with _new_path() as path, open_store(path) as store:
        with timed() as append:
            graph = _appended(messages, sampled=sampled)
        del messages
        with timed() as save:
            store.save(graph, "long")
        edit = _edit_and_save(store, graph)
        graph.append({"role": "user", "content": "one more"})
        with timed() as one_more:
            store.save(graph, "long")
        with timed() as load:
            loaded = store.load("long")
        assert loaded == graph
        edit_loaded = _edit_and_save(store, loaded)
        assert not store.verify()
    times = both(append=append, save=save, one_more=one_more, load=load, edit=edit, edit_loaded=edit_loaded)
    return {**times, "peak": peak_mib()}


def _appended(messages: list[dict[str, object]], *, sampled: bool) -> MessageGraph:
    graph = MessageGraph()
    for i, message in enumerate(messages):
        if sampled and message["role"] == "assistant":
            graph.record(message, call(i))
        else:
            graph.append(message)
    return graph


def _edit_and_save(store: Store, graph: MessageGraph) -> Stopwatch:
    gc.collect()
    with timed() as watch:
        graph[0]["content"] = f"{graph[0]['content']} and more"
        store.save(graph, "long")
    return watch


# ── ten thousand versions ────────────────────────────────────────────────────────────────────────────────────────


def many_versions(scale: int) -> Values:
    """A line of 1,000 messages, edited 10,000 times before it is first saved: all versions are written at once."""
    chance, graph = random.Random(3), MessageGraph(alternating(1_001))
    for number in range(10_000 // scale):
        graph[chance.randrange(len(graph))]["content"] = text(20_000_000 + number)
    with _new_path() as path:
        with open_store(path) as store:
            with timed() as save:
                store.save(graph, "edited")
            with timed() as load:
                loaded = store.load("edited")
            assert len(loaded.versions) == len(graph.versions) == 10_000 // scale
            with timed() as verify:
                assert not store.verify()
        size = os.path.getsize(path)
    return {**both(save=save, load=load, verify=verify), "mib": size / 2**20, "peak": peak_mib()}


# ── a head that changes before every call ────────────────────────────────────────────────────────────────────────


def changing_head(scale: int) -> Values:
    """Size on disk and time in `save` of a conversation whose system message carries the time of day."""
    turns = max(500 // scale, 50)
    size, _ = _converse(turns, edit_head=False)
    edited_size, saves = _converse(turns, edit_head=True)
    times = {"save": sum(save.seconds for save in saves), "save_busy": sum(save.busy for save in saves)}
    twice = _converse(2 * turns, edit_head=True)[0] / _converse(2 * turns, edit_head=False)[0]
    sizes = {"ratio": edited_size / size, "ratio_twice": twice, "kib": edited_size / 1024, "kib_plain": size / 1024}
    return {**times, **sizes}


def _converse(turns: int, *, edit_head: bool) -> tuple[int, list[Stopwatch]]:
    saves = []
    with _new_path() as path:
        with open_store(path) as store:
            graph = MessageGraph([{"role": "system", "content": _head(0)}])
            for turn in range(turns):
                if edit_head:
                    graph[0]["content"] = _head(turn)
                graph.append({"role": "user", "content": text(2 * turn, 200)})
                graph.record({"role": "assistant", "content": text(2 * turn + 1, 400)}, call(turn))
                with timed() as save:
                    store.save(graph, "agent")
                saves.append(save)
            assert len(graph.versions) == (turns - 1 if edit_head else 0)
            assert store.load("agent").lines() == graph.lines()
        return os.path.getsize(path), saves


def _head(turn: int) -> str:
    return f"{text(0, 900)}\nIt is 2025-09-12 {turn // 60:02}:{turn % 60:02}:00. You have {500 - turn} steps left."


# ── a million nodes ──────────────────────────────────────────────────────────────────────────────────────────────

TURNS = 50
"""Of four messages each: what every conversation adds to the head it shares."""
ALIVE = 64
"""Conversations that go on at the same time."""
SAVED_EVERY = 10
"""Turns between two saves of a conversation."""


def million_nodes(scale: int) -> Values:
    """5,000 conversations of 200 messages of their own, half of them sampled, below 50 shared heads."""
    conversations = 5_000 // scale
    small, whole = _fill_store(conversations // 10), _fill_store(conversations)
    growth = {f"{key}_growth": whole[f"{key}_busy"] / small[f"{key}_busy"] for key in ("save", "verify")}
    return {**whole, **growth, "peak": peak_mib()}


def plain_nodes(scale: int) -> Values:
    """5,000 conversations of 200 messages, each saved once."""
    with _new_path() as path, open_store(path) as store:
        waiting: deque[Future[None]] = deque()
        with timed() as save:
            for n in range(5_000 // scale):
                waiting.append(store.save_soon(MessageGraph(alternating(200, first=200 * n)), f"chat-{n}"))
                if len(waiting) > IN_FLIGHT:
                    waiting.popleft().result()
            for saved in waiting:
                saved.result()
        with timed() as verify:
            assert not store.verify()
    return both(save=save, verify=verify)


def _fill_store(conversations: int) -> Values:
    with _new_path() as path:
        with open_store(path) as store:
            with timed() as save:
                _run_all(store, conversations)
            with timed() as verify:
                assert not store.verify()
            slowest = max(_load_times(store, conversations), key=lambda load: load.seconds)
        size = os.path.getsize(path)
    return {**both(save=save, verify=verify, read=slowest), "mib": size / 2**20}


def _run_all(store: Store, conversations: int) -> None:
    """Let conversations run side by side, so that their messages arrive mixed; wait until all is on disk."""
    heads = [alternating(9, first=50_000_000 + 9 * i) for i in range(50)]
    waiting: deque[Future[None]] = deque()
    for first in range(0, conversations, ALIVE):
        names = range(first, min(first + ALIVE, conversations))
        graphs = {n: MessageGraph(heads[n % len(heads)]) for n in names}
        for turn in range(TURNS):
            for n, graph in graphs.items():
                _one_turn(graph, n, turn)
                if turn % SAVED_EVERY == SAVED_EVERY - 1:
                    waiting.append(store.save_soon(graph, f"chat-{n}", run="bench"))
            while len(waiting) > IN_FLIGHT:
                waiting.popleft().result()
    for saved in waiting:
        saved.result()


def _one_turn(graph: MessageGraph, n: int, turn: int) -> None:
    """Grow a conversation; one in ten also has its context edited, one in twenty a subagent."""
    if n % 10 == 3 and turn % 10 == 5:
        graph[len(graph) // 2]["content"] = f"[shortened at turn {turn}]"
    grow(graph, n * TURNS + turn)
    if n % 20 == 7 and turn == 20:
        child = MessageGraph([{"role": "user", "content": text(90_000_000 + n)}])
        child.record({"role": "assistant", "content": text(91_000_000 + n)}, call(n))
        graph.attach(-2, child)


def _load_times(store: Store, conversations: int) -> Iterator[Stopwatch]:
    chance = random.Random(5)
    for _ in range(100):
        name = f"chat-{chance.randrange(conversations)}"
        with timed() as watch:
            graph = store.load(name)
        assert len(graph) == 9 + 4 * TURNS
        yield watch


# ── many who save at once ────────────────────────────────────────────────────────────────────────────────────────


def group_commit(scale: int) -> Values:
    """Saves of small conversations a second, by one thread and by 64."""
    alone, together = _saves_a_second(1, 640 // scale), _saves_a_second(64, 100 // scale)
    return {"alone": alone, "together": together, "ratio": together / alone}


def _saves_a_second(threads: int, saves_each: int) -> float:
    def save_all(graphs: dict[str, MessageGraph]) -> None:
        for name, graph in graphs.items():
            store.save(graph, name)

    with _new_path() as path, open_store(path) as store:
        shares = [_small_graphs(saves_each, number) for number in range(threads)]
        workers = [threading.Thread(target=save_all, args=(share,)) for share in shares]
        with timed() as watch:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        assert len(store.graphs()) == threads * saves_each
    return threads * saves_each / watch.seconds


def _small_graphs(count: int, worker: int) -> dict[str, MessageGraph]:
    first = 10 * count * worker
    return {f"{worker}-{i}": MessageGraph(alternating(10, first=first + 10 * i)) for i in range(count)}
