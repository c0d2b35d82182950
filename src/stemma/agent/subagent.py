"""Delegation: a tool that lets an agent give work to another, and keeps that conversation.

The subagent has tools, limits, a workspace and a graph of its own; its whole conversation is recorded and hangs on the
tool result that carries its answer. Several tasks run side by side. Subagents may delegate in turn, to a depth.
`tests/agent/test_subagent.py` proves it.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from stemma.agent.agent import Agent, Conversation
from stemma.tools.tool import Tool, ToolResult, as_tool

SYSTEM = "You do one task for another agent. Use your tools as needed, then answer with the result, short and exact."


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
    )
    if depth > 1:
        inner = delegation(agent, given, depth=depth - 1)
        child.offer(inner)

    async def delegate_task(tasks: list[Task]) -> ToolResult:
        """Give one or more tasks to subagents, which work on them side by side with tools of their own.

        tasks: for each, the goal and all the context needed: a subagent knows nothing else
        """
        done = await asyncio.gather(*(child.run(_prompt(task)) for task in tasks))
        texts = [_report(i, conversation) for i, conversation in enumerate(done, 1)]
        children = tuple(conversation.graph for conversation in done)
        return ToolResult(text="\n\n".join(texts), ok=all(c.completed for c in done), children=children)

    return as_tool(delegate_task, toolset="delegation")


def _prompt(task: Task) -> str:
    return f"{task.goal}\n\n{task.context}" if task.context else task.goal


def _report(number: int, conversation: Conversation) -> str:
    answer = conversation.answer or f"(no answer: {conversation.stop_reason})"
    return f"[{number}] {answer}"
