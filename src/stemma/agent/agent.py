"""The agent from Python: give it a model and tools, ask, get the conversation.

    >>> from stemma.models.scripted import ScriptedModel
    >>> agent = Agent(model=ScriptedModel(["Hello."]), system="Be kind.")
    >>> conversation = agent.run_sync("Hi!")
    >>> conversation.answer, conversation.completed
    ('Hello.', True)

Tools are functions, `Tool`s, or both; nothing is subclassed. With `save_trajectories=True` each turn is written
to `trajectory_samples.jsonl` or `failed_trajectories.jsonl` in the working folder; a later turn of the same
conversation replaces what the earlier one wrote. `tests/agent/test_agent.py` proves it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Self

import msgspec

from stemma.agent.compaction import Compaction
from stemma.agent.context import Guidance
from stemma.agent.facts import Fact, Stopped
from stemma.agent.limits import Limits
from stemma.agent.loop import Setup, converse
from stemma.core.graph import MessageGraph
from stemma.formats.files import TrajectoryFile, Written
from stemma.formats.hermes import to_trajectory
from stemma.models.protocol import Model, OnDelta
from stemma.models.retry import Retries
from stemma.tools.tool import Tool, as_tool
from stemma.tools.workspace import Workspace


class Agent:
    """A model with tools and limits; it holds no conversation itself, so one agent can run many at once."""

    def __init__(
        self,
        *,
        model: Model,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        system: str = "",
        ephemeral: str = "",
        prefill: Sequence[Mapping[str, Any]] = (),
        params: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        compaction: Compaction | None = None,
        workspace: Callable[[], Workspace] | None = None,
        tool_retries: Retries | None = None,
        save_trajectories: bool = False,
    ) -> None:
        """An agent.

        tool_retries: how often to try a tool call that the harness could not run, such as for want of descriptors
        """
        offered = [tool if isinstance(tool, Tool) else as_tool(tool) for tool in tools]
        self.setup = Setup(
            model=model,
            tools={tool.name: tool for tool in offered},
            params=dict(params or {}),
            limits=limits or Limits(),
            guidance=Guidance(ephemeral=ephemeral, prefill=prefill),
            compaction=compaction or Compaction(),
            tool_retries=tool_retries or Retries(),
        )
        self.system = system
        self.workspace = workspace or Workspace
        self.save_trajectories = save_trajectories

    def offer(self, *tools: Tool) -> None:
        """Give the agent more tools, for conversations that start from now on."""
        known = {**self.setup.tools, **{tool.name: tool for tool in tools}}
        self.setup = msgspec.structs.replace(self.setup, tools=known)

    def changed(
        self,
        *,
        model: Model | None = None,
        tools: Iterable[Tool] | None = None,
        system: str | None = None,
        params: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        workspace: Callable[[], Workspace] | None = None,
    ) -> "Agent":
        """Another agent, alike in all that is not given; `params` go over its own."""
        twin = copy(self)
        twin.setup = msgspec.structs.replace(
            self.setup,
            model=model or self.setup.model,
            tools=self.setup.tools if tools is None else {tool.name: tool for tool in tools},
            params={**self.setup.params, **(params or {})},
            limits=limits or self.setup.limits,
        )
        twin.system = self.system if system is None else system
        twin.workspace = workspace or self.workspace
        return twin

    def start(self, graph: MessageGraph | None = None, written: Written | None = None) -> "Conversation":
        """A conversation of its own, from the beginning or where `graph` stands.

        written: the line of a trajectory file that an earlier process wrote of it, and that the next turn replaces
        """
        return Conversation(self, graph, written)

    async def run(self, prompt: str | Sequence[Mapping[str, Any]], graph: MessageGraph | None = None) -> "Conversation":
        """Ask, and go on until there is an answer, a limit or a failure."""
        async with self.start(graph) as conversation:
            await conversation.say(prompt)
        return conversation

    def run_sync(self, prompt: str | Sequence[Mapping[str, Any]], graph: MessageGraph | None = None) -> "Conversation":
        """The same for scripts; where an event loop runs already, `await run(…)`."""
        return asyncio.run(self.run(prompt, graph))


class Conversation:
    """One conversation: its graph, its workspace, and how its last turn ended."""

    def __init__(self, agent: Agent, graph: MessageGraph | None = None, written: Written | None = None) -> None:
        self.agent = agent
        self.graph = graph if graph is not None else MessageGraph()
        if agent.system and not len(self.graph):
            self.graph.append({"role": "system", "content": agent.system})
        self.stopped: Stopped | None = None
        self.workspace = agent.workspace()
        self._file = TrajectoryFile(written=written) if agent.save_trajectories else None

    async def __aenter__(self) -> Self:
        await self.workspace.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.workspace.close()

    async def say(self, prompt: str | Sequence[Mapping[str, Any]], on_delta: OnDelta | None = None) -> str | None:
        """Ask, and wait for the answer; None if there was none."""
        async for _ in self.facts(prompt, on_delta):
            pass
        return self.answer

    async def facts(
        self, prompt: str | Sequence[Mapping[str, Any]] = (), on_delta: OnDelta | None = None
    ) -> AsyncIterator[Fact]:
        """The same, fact by fact; without a prompt the conversation goes on where it was interrupted."""
        said = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        self.graph.extend(said)
        self.stopped = None
        setup = msgspec.structs.replace(
            self.agent.setup, on_delta=on_delta, notes=self.workspace.openings(), redactor=self.workspace.redactor
        )
        try:
            async for fact in converse(self.graph, setup, self.workspace):
                if isinstance(fact, Stopped):
                    self.stopped = fact
                yield fact
        finally:
            if self.stopped is None:
                self.stopped = Stopped("interrupted")
            self.save_trajectory()

    def save_trajectory(self) -> None:
        """Write the conversation as it is now, in the place of what was written of it before."""
        if self._file is not None:
            tools = [tool.schema() for tool in self.agent.setup.tools.values()]
            turns = to_trajectory(self.graph.messages(), tools)
            self._file.write(turns, self.agent.setup.model.name, self.completed)

    @property
    def written(self) -> Written | None:
        """The line that was last written of it to a trajectory file."""
        return self._file.written if self._file is not None else None

    @property
    def answer(self) -> str | None:
        """The last turn's answer."""
        return str(self.graph[-1]["content"]) if self.completed else None

    @property
    def completed(self) -> bool:
        """Whether the last turn ended in a real answer."""
        return self.stopped is not None and self.stopped.completed

    @property
    def stop_reason(self) -> str | None:
        """Why the last turn ended."""
        return self.stopped.reason if self.stopped else None

    @property
    def usage(self) -> dict[str, int]:
        """Token counts of all calls together, subagents' included, as the endpoints gave them."""
        total: dict[str, int] = {}
        for member in self.graph.reach():
            for sampled in member.calls():
                for key, value in sampled.call.usage.items():
                    if isinstance(value, int):
                        total[key] = total.get(key, 0) + value
        return total

    @property
    def cost(self) -> float | None:
        """Money spent, where the endpoints said; None if none did."""
        costs = [s.call.cost for member in self.graph.reach() for s in member.calls() if s.call.cost is not None]
        return sum(costs) if costs else None
