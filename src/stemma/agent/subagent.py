"""Delegation: a tool that lets an agent give work to another, and keeps that conversation.

The subagent has tools, limits, a workspace and a graph of its own; its whole conversation is recorded and hangs on the
tool result that carries its answer. Several tasks run side by side. Subagents may delegate in turn, to a depth. A
subagent that the model's endpoint or the harness failed has no result: the whole call fails, and is run again later.
`tests/agent/test_subagent.py` proves it.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from stemma.agent.agent import Agent, Conversation
from stemma.agent.facts import FAILURES
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
        done = await asyncio.gather(*(child.run(_prompt(task)) for task in tasks))
        _check_ran(done)
        texts = [_report(i, conversation) for i, conversation in enumerate(done, 1)]
        children = tuple(conversation.graph for conversation in done)
        return ToolResult(text="\n\n".join(texts), ok=all(c.completed for c in done), children=children)

    return as_tool(delegate_task, toolset="delegation")


def _check_ran(done: Iterable[Conversation]) -> None:
    """`SubagentFailed` if one of them did not get to its own end: that is no answer for the model to read."""
    for stopped in (conversation.stopped for conversation in done):
        if stopped is not None and stopped.reason in FAILURES:
            raise SubagentFailed(f"a subagent stopped with a {stopped.reason}: {stopped.detail}")


def _prompt(task: Task) -> str:
    return f"{task.goal}\n\n{task.context}" if task.context else task.goal


def _report(number: int, conversation: Conversation) -> str:
    answer = conversation.answer or f"(no answer: {conversation.stop_reason})"
    return f"[{number}] {answer}"
