"""Saves conversations and says so after each save, until it is done or killed. Run by the tests in this folder.

    python saver.py STORE SAVES SEED   prints `ready`, then `saved NAME MESSAGES` or `refused NAME ERROR`, then `done`

A conversation only grows: each save adds a question, a recorded answer and, now and then, a tool result with a
subagent's conversation; some also edit an earlier message, which keeps a version.
"""

import random
import sys
from contextlib import ExitStack
from typing import Any

from stemma import Call, MessageGraph
from stemma.errors import NotWritten, StoreError
from stemma.store import SQLiteStore


def say(*words: Any) -> None:
    """One line in one write: it is out, or it is not."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def take_a_turn(graph: MessageGraph, name: str, chance: random.Random) -> None:
    """Two messages more, or three, and perhaps an edit."""
    graph.append({"role": "user", "content": f"{name} {len(graph)} " + "x" * chance.randrange(1, 20_000)})
    graph.record({"role": "assistant", "content": f"{name} {len(graph)}"}, Call(model="m", params={"n": len(graph)}))
    if chance.random() < 0.2:
        child = MessageGraph([{"role": "user", "content": f"below {name} {len(graph)}"}])
        child.record({"role": "assistant", "content": "done"}, Call(model="m", tools=[{"name": "f"}]))
        result = {"role": "tool", "tool_call_id": "1", "content": f"{name} {len(graph)}"}
        graph.append(result, contains=child)
    if chance.random() < 0.3:
        graph[0]["content"] = f"{name} 0 edited at {len(graph)}"


def main(path: str, saves: int, seed: int) -> None:
    chance = random.Random(seed)
    with ExitStack() as stack:
        try:
            store = stack.enter_context(SQLiteStore(path))
            graphs = {info.name: store.load(info.name) for info in store.graphs()}
        except StoreError as problem:
            say("refused", "opening", type(problem).__name__)
            return
        say("ready")
        for _ in range(saves):
            name = f"chat-{chance.randrange(3)}"
            graph = graphs.setdefault(name, MessageGraph())
            take_a_turn(graph, name, chance)
            try:
                store.save(graph, name, run="crash", metadata={"messages": len(graph)})
                say("saved", name, len(graph))
            except NotWritten as problem:
                say("refused", name, type(problem).__name__)
    say("done")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
