"""The agent for one task: the run's agent, changed as the row and the draw say.

What a row names comes first, then what a distribution draws, then the agent's own. Agents with the same tools share
them, so that a thousand tasks do not derive a thousand schemas. `tests/batch/test_outfit.py` proves it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from stemma.agent.agent import Agent
from stemma.batch.distributions import Distribution
from stemma.batch.plan import Task, drawn_toolsets
from stemma.batch.record import Record
from stemma.tools.sandbox import choose_sandbox
from stemma.tools.tool import Tool
from stemma.tools.workspace import Workspace

Offer = Callable[[Sequence[str]], list[Tool]]
"""The tools that names of toolsets or tools stand for."""


class Outfitter:
    """Makes agents for tasks."""

    def __init__(self, agent: Agent, offer: Offer, distribution: Distribution | None, seed: int) -> None:
        self.agent, self._offer = agent, offer
        self._distribution, self._seed = distribution, seed
        self._tools: dict[tuple[str, ...], list[Tool]] = {}

    def check(self) -> None:
        """Complain of a toolset that cannot be offered now, not when it is first drawn."""
        for name, percent in self._distribution.percent.items() if self._distribution else ():
            if percent:
                self._offer([name])

    def toolsets(self, task: Task) -> list[str] | None:
        """Names of what a task is offered; None: what the agent has anyway."""
        if task.row.toolsets is not None:
            return list(task.row.toolsets)
        return None if self._distribution is None else drawn_toolsets(self._distribution, self._seed, task)

    def tools(self, task: Task) -> list[Tool]:
        """The tools a task is offered."""
        names = self.toolsets(task)
        if names is None:
            return list(self.agent.setup.tools.values())
        key = tuple(names)
        if key not in self._tools:
            self._tools[key] = self._offer(names)
        return self._tools[key]

    def agent_for(self, task: Task, record: Record, place: Path) -> Agent:
        """The agent that works on a task in `place`."""
        return self.agent.changed(
            tools=self.tools(task),
            system=task.row.system,
            params=record.params,
            limits=task.row.limits,
            workspace=lambda: self._workspace(task, place),
        )

    def _workspace(self, task: Task, place: Path) -> Workspace:
        workspace = self.agent.workspace().kept_in(place)
        if task.row.image is not None:
            workspace = workspace.behind(choose_sandbox(image=task.row.image))
        return workspace


def own_toolsets(tools: Sequence[Tool]) -> list[str]:
    """The toolsets that tools belong to, each once."""
    return list(dict.fromkeys(tool.toolset for tool in tools))
