"""A small store that has something in every column of every table, and what it says."""

from pathlib import Path
from typing import Any

from stemma import Call, MessageGraph
from stemma.core.canonical import canonical
from stemma.core.fingerprint import fingerprint
from stemma.store import Store

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call-{number}", "content": text}


def agent() -> MessageGraph:
    """Calls of every kind, versions for two reasons, and subagents two deep, one of them in two places."""
    below = MessageGraph([user("look deeper")])
    below.record(assistant("deep"), Call(model="small"))
    child = MessageGraph([user("look"), result(9, "asked below")])
    child.attach(1, below)
    child.record(assistant("found"), Call(model="small", tools=TOOLS))
    graph = MessageGraph([{"role": "system", "content": "Be \ud83d brief."}, user("Find it.")])
    twin = Call(model="large", tools=TOOLS, params={"temperature": 0.5})
    for _ in range(2):
        graph.record(assistant("I shall."), twin)
        graph.pop()
    tokens = Call(model="large", prompt_ids=[1, 2, 3], sampled_ids=[4, 5], logprobs=[-0.5, -1.5], cost=0.001)
    graph.record(
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call-1", "args": '{"a":1,"a":2}'}]}, tokens
    )
    graph.append(result(1, "here"), contains=[child, below])
    graph.record(assistant("Here."), Call(model="large", id="mine", finish_reason="stop", usage={"n": 5}))
    with graph.edit(reason="compaction"):
        graph[1:3] = [user("Find it, in short.")]
    graph.append(user("Thanks."))
    return graph


def fill(store: Store) -> None:
    """Save the sample, in several steps, so that lines lie behind lines."""
    graph = MessageGraph([user(f"message {i}") for i in range(40)])
    store.save(graph, "long", run="first")
    graph[0]["content"] = "an edit that breaks nothing"
    graph.append(assistant("written by hand"))
    store.save(graph, "long")
    graph[20]["content"] = "an edit that breaks a prefix"
    store.save(graph, "long", metadata={"note": "\u2028", "tags": [True, 1, 1.0]})
    store.save(graph.fork(), "fork of long", run="second")
    store.save(agent(), "agent", run="first", metadata={"score": 0.5})
    left = MessageGraph([user("soon gone")])
    store.save(left, "emptied")
    left.clear()
    store.save(left, "emptied")
    store.save_run("first", {"seed": 7})


def contents(store: Store) -> dict[str, Any]:
    """All that a store says."""
    graphs = {info.name: store.load(info.name) for info in store.graphs()}
    return {
        "graphs": [(info, canonical(info.metadata)) for info in store.graphs()],
        "runs": [(run, canonical(run.metadata)) for run in store.runs()],
        "wholes": {name: fingerprint(graph) for name, graph in graphs.items()},
        "lines": {name: canonical(graph.lines()) for name, graph in graphs.items()},
        "calls": {name: graph.calls() for name, graph in graphs.items()},
        "rows": {name: [(row.trained, row.calls, row.tip) for row in graph.rows()] for name, graph in graphs.items()},
    }


def at_hand(folder: Path) -> Path:
    """Where files cost little, if there is such a place."""
    return Path("/dev/shm") if Path("/dev/shm").is_dir() else folder
