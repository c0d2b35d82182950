"""The tools' turn: every call of the last reply that has no result yet gets one.

Calls run side by side; results are appended in the order asked. A graph that a crash left with unanswered calls is
answered the same way, so a conversation goes on where it stopped. A call that the harness could not run is tried again
with a growing wait; one that never runs stays open, and `HarnessFailed` rises.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from stemma.agent.facts import Fact, ToolRan, ToolStarted
from stemma.agent.limits import Shared, shared
from stemma.core.graph import MessageGraph
from stemma.models.retry import Chance, Retries, persist
from stemma.tools.running import run_tool
from stemma.tools.tool import Tool, ToolResult
from stemma.tools.workspace import Workspace


async def answer_open_calls(
    graph: MessageGraph,
    tools: Mapping[str, Tool],
    workspace: Workspace | None,
    clock: Callable[[], float],
    shares: Shared | None = None,
    retries: Retries | None = None,
    chance: Chance = random.random,
) -> AsyncIterator[Fact]:
    """Run the open calls and append their results; a listener that leaves cancels what still runs.

    shares: what subagents that a tool starts have in common with this conversation
    """
    calls = open_calls(graph)
    for call in calls:
        yield ToolStarted(*call)

    async def answer(name: str, given: Any) -> ToolResult:
        patience = retries or Retries()
        return await persist(
            lambda _: run_tool(tools, name, given, workspace), patience, until=float("inf"), chance=chance
        )

    work = [_timed(answer(name, given), clock, shares) for _, name, given in calls]
    # Side by side, each in a task of its own; one alone needs none.
    running = [asyncio.ensure_future(one) for one in work] if len(work) > 1 else []
    try:
        for (call_id, name, _), outcome in zip(calls, running or work, strict=True):
            result, seconds = await outcome
            message = {"role": "tool", "tool_call_id": call_id, "name": name, "content": result.text}
            graph.append(message, contains=result.children or None)
            yield ToolRan(call_id, name, result, seconds)
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for one in work if not running else ():
            one.close()  # it was never begun, if the one before it failed


async def _timed(
    work: Awaitable[ToolResult], clock: Callable[[], float], shares: Shared | None
) -> tuple[ToolResult, float]:
    begun, before = clock(), shared.set(shares)
    try:
        return await work, clock() - begun
    finally:
        shared.reset(before)


def open_calls(graph: MessageGraph) -> list[tuple[str, str, Any]]:
    """Id, tool and arguments of each call of the last reply that no tool message after it answers."""
    answered: list[Any] = []
    for place in range(len(graph) - 1, -1, -1):
        message = graph.message(place)
        if message["role"] != "tool":
            return _unanswered(message, answered) if message["role"] == "assistant" else []
        answered.append(message.get("tool_call_id"))
    return []


def _unanswered(reply: dict[str, Any], answered: list[Any]) -> list[tuple[str, str, Any]]:
    found = []
    for call in reply.get("tool_calls") or ():
        call_id = call.get("id") or ""
        if call_id in answered:
            answered.remove(call_id)
        else:
            function = call.get("function") or {}
            found.append((call_id, str(function.get("name")), function.get("arguments", "")))
    return found
