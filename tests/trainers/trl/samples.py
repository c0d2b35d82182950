"""Conversations for the loader tests: made as graphs, each text unlike any other, so that it can be found again."""

import json
from collections.abc import Iterator

from stemma import Call, MessageGraph
from stemma.formats.training import TrainingRow, rows_of_graph

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} something",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    }
    for name in ("search", "measure")
]
CANARY = "this was only whispered"


def call(tools=None):
    return Call(model="m", tools=tools, extra={"ephemeral": CANARY, "raw": CANARY}, finish_reason="stop")


def said(content, reasoning=None, calls=()):
    message = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{name}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(calls)
        ]
    return message


def plain_chat() -> MessageGraph:
    graph = MessageGraph([{"role": "user", "content": "plain question"}])
    graph.record(said("plain answer", "plain thought"), call())
    return graph


def tool_use() -> MessageGraph:
    """Two calls at once, of different shapes; a thought before each reply; numbers that a careless parser bends."""
    graph = MessageGraph([{"role": "system", "content": "tool system"}, {"role": "user", "content": "tool question"}])
    calls = [
        ("search", {"q": "first query", "limit": 3}),
        ("measure", {"at": [0.41, 1e-12, 52.51703650000001], "q": None}),
    ]
    graph.record(said(None, "thought before calls", calls), call(TOOLS))
    graph.append({"role": "tool", "tool_call_id": "call_search_0", "content": "search result"})
    graph.append({"role": "tool", "tool_call_id": "call_measure_1", "content": '{"measured": "result"}'})
    graph.record(
        said("one more look", "thought in between", [("search", {"q": {"deep": ["second query"]}})]), call(TOOLS)
    )
    graph.append({"role": "tool", "tool_call_id": "call_search_0", "content": "second search result"})
    graph.record(said("tool answer", "thought at the end"), call(TOOLS))
    return graph


def edited() -> MessageGraph:
    """The first question is edited after it was answered: the answer is trained in one row and context in the other."""
    graph = MessageGraph([{"role": "user", "content": "question before the edit"}])
    graph.record(said("answer before the edit", "thought before the edit"), call())
    graph[0]["content"] = "question after the edit"
    graph.append({"role": "user", "content": "second question"})
    graph.record(said("answer after the edit", "thought after the edit"), call())
    return graph


def interrupted() -> MessageGraph:
    """A turn that no model sampled stands between two that one did, so that no single row can train just the two."""
    graph = MessageGraph(
        [{"role": "system", "content": "short system"}, {"role": "user", "content": "opening question"}]
    )
    graph.record(said("sampled opening", "opening thought"), call())
    graph.append({"role": "user", "content": "middle question"})
    graph.append(said("written by hand"))
    graph.append({"role": "user", "content": "closing question"})
    graph.record(said("sampled closing", "closing thought"), call())
    return graph


GRAPHS = (plain_chat, tool_use, edited, interrupted)


def rows() -> Iterator[TrainingRow]:
    """All their training rows; 10 messages of them are trained."""
    for make in GRAPHS:
        yield from rows_of_graph(make(), {})
