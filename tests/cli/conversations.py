"""A small conversation with everything in it, and larger ones that are hard to draw."""

from typing import Any

from stemma import Call, MessageGraph


def say(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def asks(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def by(model: str = "qwen3-8b", **known: Any) -> Call:
    return Call(model=model, **{"params": {"temperature": 0.7}, **known})


def subagent() -> MessageGraph:
    """Counts primes, and has the count checked by a subagent of its own."""
    checker = MessageGraph([say("user", "Is 25 right?")])
    checker.record(say("assistant", "Yes."), by("smollm2"))
    graph = MessageGraph([say("system", "You count things."), say("user", "Count the primes below 100.")])
    graph.record(asks("delegate", '{"task": "check"}', "s1"), by("smollm2", finish_reason="tool_calls"))
    graph.append(say("tool", "Yes.", tool_call_id="s1"), contains=checker)
    graph.record(say("assistant", "25"), by("smollm2", finish_reason="stop"))
    return graph


def demo() -> MessageGraph:
    """A resample, an edit, a compaction, tool calls, and subagents two levels deep."""
    graph = MessageGraph([say("system", "You are a careful assistant."), say("user", "How many primes below 100?")])
    graph.record(asks("delegate", '{"task": "count primes below 100"}', "c1"), by(finish_reason="tool_calls"))
    graph.append(say("tool", "25", tool_call_id="c1"), contains=subagent())
    graph.record(say("assistant", "There are 24 primes below 100."), by(finish_reason="stop"))
    with graph.edit("resample"):
        graph.pop()
    usage = {"prompt_tokens": 61, "completion_tokens": 9}
    answer = say("assistant", "There are 25 primes below 100.", reasoning="The tool says 25.")
    graph.record(answer, by(finish_reason="stop", usage=usage, cost=0.0004, seconds=1.25, sampled_ids=[5, 6, 7]))
    graph[1]["content"] = "How many primes are there below 100?"
    graph.append(say("user", "And below 10?"))
    graph.record(say("assistant", "Four: 2, 3, 5 and 7."), by(finish_reason="stop"))
    with graph.edit("compaction"):
        graph[1:5] = [say("user", "(Earlier: there are 25 primes below 100.)")]
    graph.append(say("user", "Which of them is the largest?"))
    graph.record(say("assistant", "7."), by(finish_reason="stop"))
    return graph


def turn(graph: MessageGraph, number: int) -> None:
    graph.append(say("user", f"question {number}"))
    graph.record(say("assistant", f"answer {number}"), by("m"))


def head_edited_every_turn(turns: int) -> MessageGraph:
    """As agents do that write the time into their system message."""
    graph = MessageGraph([say("system", "it is …")])
    for number in range(turns):
        graph[0]["content"] = f"it is {number} o'clock"
        turn(graph, number)
    return graph


def edited_from_the_end(turns: int) -> MessageGraph:
    """Each edit earlier than the one before: every version parts from the next newer one, not from the trunk."""
    graph = MessageGraph([say("system", "Hello")])
    for number in range(turns):
        turn(graph, number)
    for index in range(2 * turns - 1, 0, -2):
        graph[index]["content"] = "edited"
    return graph
