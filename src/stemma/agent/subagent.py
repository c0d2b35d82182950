"""Delegation: a tool that lets an agent give work to another, and keeps that conversation.

The subagent has tools, a workspace and a graph of its own; its whole conversation is recorded and hangs on the tool
result that carries its answer. Model, parameters and limits are those of the conversation that delegates: turns,
tokens, money, time and calls at once are counted for both together (`agent.limits`). Several tasks run side by side.
Subagents may delegate in turn, to a depth. A subagent that the model's endpoint or the harness failed has no result:
the whole call fails, and is run again later. `tests/agent/test_subagent.py` and `tests/agent/test_limits.py` prove it.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec

from stemma.agent.agent import Agent, Conversation
from stemma.agent.facts import FAILURES
from stemma.agent.limits import AT_ONCE, Shared, shared
from stemma.errors import HarnessFailed
from stemma.tools.tool import Tool, ToolResult, as_tool

SYSTEM = "You do one task for another agent. Use your tools as needed, then answer with the result, short and exact."


class SubagentFailed(HarnessFailed):
    """A subagent that the model's endpoint or the harness failed, after all its own retries."""

    retryable = False


class Task(msgspec.Struct, frozen=True):
    """Work for a subagent."""

    goal: str
    context: str = ""


def delegation(agent: Agent, tools: Iterable[Tool], *, depth: int = 1) -> Tool:
    """The tool `delegate_task` for `agent`'s model, whose subagents get `tools`."""
    given = list(tools)
    child = Agent(
        model=agent.setup.model,
        tools=given,
        system=SYSTEM,
        params=agent.setup.params,
        limits=agent.setup.limits,
        workspace=agent.workspace,
        tool_retries=agent.setup.tool_retries,
    )
    if depth > 1:
        inner = delegation(agent, given, depth=depth - 1)
        child.offer(inner)

    async def delegate_task(tasks: list[Task]) -> ToolResult:
        """Give one or more tasks to subagents, which work on them side by side with tools of their own.

        tasks: for each, the goal and all the context needed: a subagent knows nothing else
        """
        by, places = shared.get(), asyncio.Semaphore(AT_ONCE)
        agent = _sharing(child, by)

        async def work(task: Task) -> Conversation | None:
            async with places:
                if by is not None and by.spent.reached(by.limits):
                    return None  # it could not ask anything
                return await agent.run(_prompt(task))

        done = await _all_of([work(task) for task in tasks])
        _check_ran(done)
        texts = [_report(i, conversation) for i, conversation in enumerate(done, 1)]
        children = tuple(conversation.graph for conversation in done if conversation is not None)
        completed = all(conversation is not None and conversation.completed for conversation in done)
        return ToolResult(text="\n\n".join(texts), ok=completed, children=children)

    return as_tool(delegate_task, toolset="delegation")


def _sharing(child: Agent, by: Shared | None) -> Agent:
    """The subagent, for the conversation that delegates."""
    if by is None:
        return child
    agent = child.changed(model=by.model, params=by.params, limits=by.limits)
    agent.setup = msgspec.structs.replace(agent.setup, spent=by.spent)
    return agent


async def _all_of(work: list[Coroutine[Any, Any, Conversation | None]]) -> list[Conversation | None]:
    """All outcomes, in order; if one fails, the others are ended before it rises."""
    running = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _check_ran(done: Iterable[Conversation | None]) -> None:
    """`SubagentFailed` if one of them did not get to its own end: that is no answer for the model to read."""
    for stopped in (conversation.stopped for conversation in done if conversation is not None):
        if stopped is not None and stopped.reason in FAILURES:
            raise SubagentFailed(f"a subagent stopped with a {stopped.reason}: {stopped.detail}")


def _prompt(task: Task) -> str:
    return f"{task.goal}\n\n{task.context}" if task.context else task.goal


def _report(number: int, conversation: Conversation | None) -> str:
    if conversation is None:
        return f"[{number}] (not begun: a limit is used up)"
    answer = conversation.answer or f"(no answer: {conversation.stop_reason})"
    return f"[{number}] {answer}"
