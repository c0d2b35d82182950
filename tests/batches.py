"""Small batches for tests: an agent that thinks, calls a tool and answers, and what a run left behind."""

import json
from pathlib import Path
from typing import Any

from stemma import open_store
from stemma.agent.agent import Agent
from stemma.batch.record import Record, read_record
from stemma.models.protocol import Request
from stemma.models.scripted import ScriptedModel


def add(a: int, b: int) -> int:
    """Add two numbers.

    a: the first
    b: the second
    """
    return a + b


def calls(name: str, arguments: dict[str, Any], call_id: str = "call_1") -> dict[str, Any]:
    """A reply that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "content": None,
        "reasoning": "I need a tool.",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def adder(request: Request) -> dict[str, Any]:
    """Adds with the tool, then says the sum: what it says depends on the context alone."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return {"content": f"It is {last['content']}.", "reasoning": "The tool said so."}
    number = len(str(last["content"]))
    return calls("add", {"a": number, "b": 1}, f"call_{len(request.messages)}")


def adding_agent(model: Any = None, **more: Any) -> Agent:
    """An agent with one tool."""
    return Agent(model=model or ScriptedModel(adder), tools=[add], **more)


def records_of(folder: Path, run: str) -> dict[str, Record]:
    """The records in a run's store."""
    with open_store(folder / run / "stemma.db", create=False) as store:
        return {name: read_record(store.metadata(name)) for name in store.names(run)}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a run that is made from its store."""
    wanted = [*folder.glob("*.jsonl"), folder / "statistics.json"]
    return {path.name: path.read_bytes() for path in wanted}
