"""A batch from Python: `for result in run_batch(prompts, agent=agent, name="first"): …`

    >>> from tempfile import TemporaryDirectory
    >>> from stemma.agent.agent import Agent
    >>> from stemma.models.scripted import ScriptedModel
    >>> agent = Agent(model=ScriptedModel(lambda request: {"content": "Four.", "reasoning": "2 + 2"}))
    >>> with TemporaryDirectory() as folder:
    ...     [result.answer for result in run_batch(["What is 2 + 2?"], agent=agent, name="sums", folder=folder)]
    ['Four.']

It does all that the command does, but in one process. Results come as they finish; `async for` works where a loop runs,
and plain `for` works anywhere, a notebook included. Running it again with the same name goes on: what has ended is
kept, what failed is tried again. `tests/batch/test_batch.py` proves it.
"""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from stemma.agent.agent import Agent
from stemma.agent.context import with_guidance
from stemma.batch.budget import BadBudget, Budget, check_prices
from stemma.batch.claims import alone, held
from stemma.batch.crew import Crew
from stemma.batch.distributions import Distribution
from stemma.batch.files import RunFiles
from stemma.batch.line import Begin
from stemma.batch.needs import fitted_pace
from stemma.batch.order import Ended, Order, Result
from stemma.batch.outfit import Offer, Outfitter
from stemma.batch.outputs import Shape, kept_shape, own_metadata, records
from stemma.batch.plan import Plan, Selection, Task, tasks
from stemma.batch.policies import Policies
from stemma.batch.progress import Progress
from stemma.batch.prompts import Prompts, read_rows
from stemma.batch.recipe import ChangedRecipe, changes, recipe_id, recipe_of, told
from stemma.batch.record import ENDED, Record, read_record
from stemma.batch.reserve import Reserve
from stemma.batch.rewards import Reward
from stemma.batch.runner import Runner, first_pace
from stemma.batch.threaded import in_a_thread
from stemma.core.names import check_name
from stemma.errors import NotFound
from stemma.formats.entries import Columns, columns_of
from stemma.store import Store, open_store
from stemma.tools.tool import Tool
from stemma.tools.toolsets import TOOL_TO_TOOLSET_MAP, choose_tools

RUNS = "runs"


def run_batch(
    prompts: Prompts,
    *,
    agent: Agent,
    name: str,
    folder: str | Path = RUNS,
    samples: int = 1,
    seed: int | None = None,
    distribution: Distribution | None = None,
    offer: Offer | None = None,
    selection: Selection | None = None,
    concurrency: int | None = None,
    budget: Budget | None = None,
    batch_size: int = 100,
    reward: Reward | None = None,
    keep_no_reasoning: bool = False,
    keep_unknown_tools: bool = False,
    retry_failed: bool = True,
    amend: bool = False,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
) -> "Batch":
    """Run an agent over prompts, as a run called `name` in a folder of its own.

    samples: how many conversations each prompt gets
    seed: makes the draw of toolsets and each task's sampling seed repeatable; the seed is sent to the model
    distribution: which toolsets a prompt is offered; `offer` says which tools a name stands for
    concurrency: how many at once; None: as many as the endpoint bears
    batch_size: how many prompts a part file holds
    amend: go on with a run although what affects sampling has changed; what has ended stays as it was
    """
    check_name("run's name", name)
    policies = Policies(
        keep_no_reasoning=keep_no_reasoning, keep_unknown_tools=keep_unknown_tools, rewarded=reward is not None
    )
    if budget is not None and budget.cost is not None:
        check_prices(agent.setup.model, "a budget")
    if agent.setup.limits.cost is not None:
        check_prices(agent.setup.model, "a limit on the cost of a conversation (agent.cost)")
    chosen = selection or Selection()
    rows = prompts if isinstance(prompts, str | Path) else list(prompts)
    outfitter = Outfitter(agent, offer or offer_of(agent), distribution, seed or 0)
    recipe = recipe_of(agent, distribution, seed)
    return Batch(
        Order(
            name=name,
            folder=Path(folder) / name,
            recipe=recipe_id(recipe),
            outfitter=outfitter,
            tasks=lambda: tasks(chosen.of(read_rows(rows)), samples),
            seed=seed,
            concurrency=concurrency,
            budget=budget or Budget(),
            reward=reward,
            retry_failed=retry_failed,
            now=now,
            clock=clock,
        ),
        recipe,
        policies,
        batch_size,
        amend=amend,
    )


def offer_of(agent: Agent) -> Offer:
    """Shipped tools by their names, and the agent's own."""

    own = [tool for name, tool in agent.setup.tools.items() if name not in TOOL_TO_TOOLSET_MAP]

    def offer(names: Sequence[str]) -> list[Tool]:
        return choose_tools(names, extra=own).tools

    return offer


class Batch:
    """A run: iterate over it to have it run."""

    def __init__(
        self, order: Order, recipe: Mapping[str, Any], policies: Policies, batch_size: int, *, amend: bool = False
    ) -> None:
        self.order, self.recipe, self._policies, self._batch_size = order, dict(recipe), policies, batch_size
        self._amend = amend
        self._runner: Runner | None = None
        self.reserve: Reserve | None = None
        """Where helpers come from when one processor is not enough."""
        self.notice: Callable[[str], None] = lambda _: None
        """Is told what differs from what was asked for."""
        self.progress = Progress(order.clock)
        self.left_to_others = 0
        """Tasks that other processes were still working on when this one had no more to do."""
        self.statistics: dict[str, Any] = {}
        """The numbers of the whole run, once it has ended."""

    @property
    def folder(self) -> Path:
        """Where everything is."""
        return self.order.folder

    def stop(self, why: str = "asked to stop") -> None:
        """Start no more tasks; those that run come to their end. May be called from any thread."""
        if self._runner is not None:
            self._soon(self._runner, self._runner.stop, why)

    def cancel(self) -> None:
        """Leave running tasks where they are; run it again to go on. May be called from any thread."""
        if self._runner is not None:
            self._soon(self._runner, self._runner.cancel)

    def _soon(self, runner: Runner, do: Callable[..., None], *given: str) -> None:
        with suppress(RuntimeError):  # its loop is closed: nothing runs that could be stopped
            runner.loop.call_soon_threadsafe(do, *given)

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────

    async def __aiter__(self) -> AsyncGenerator[Result, None]:
        self.check()
        self.folder.mkdir(parents=True, exist_ok=True)
        with open_store(self.folder / "stemma.db") as store:
            plan = self.plan(store)
            await self._check_needs(plan)
            shape = Shape(
                columns=plan.columns, known_tools=plan.tools, batch_size=self._batch_size, policies=self._policies
            )
            about = self._begin(store, plan, shape)
            files = RunFiles(self.folder, self.order.name, store, shape, about)
            self._prepare(files, store, plan)
            with self._budget_to_ourselves():
                runner = self._running(store, plan, shape, files)
                try:
                    async with aclosing(runner.results()) as results:
                        async for result in results:
                            yield result
                finally:
                    self.statistics = files.finish()
                    self.left_to_others = sum(_is_under_way(store, name) for name in runner.with_others)
                    self._remember_unrecorded(store, runner)

    @contextmanager
    def _budget_to_ourselves(self) -> Iterator[None]:
        """A run's budget is one process's to keep: two would each count their own calls only."""
        if not self.order.budget:
            yield
            return
        with held(self.folder / "budget.lock") as ours:
            if not ours:
                raise BadBudget(f"another process runs {self.order.name!r} within a budget; wait for it, or give none")
            yield

    def _remember_unrecorded(self, store: Store, runner: Runner) -> None:
        """Write down what was paid for and is in no conversation: calls of subagents whose work was interrupted."""
        known = _run_metadata(store, self.order.name)
        if not self.order.budget or known is None:
            return
        tokens = runner.spent.tokens - self.statistics["tokens"].get("total_tokens", 0)
        cost = (runner.spent.cost or 0.0) - (self.statistics["cost"] or 0.0)
        store.save_run(self.order.name, {**known, "unrecorded": {"tokens": max(tokens, 0), "cost": max(cost, 0.0)}})

    async def _check_needs(self, plan: Plan) -> None:
        """`HarnessFailed` if commands are offered and the sandbox does not work: now, not at the first command."""
        if plan.shells and plan.to_do:
            await self.order.outfitter.agent.workspace().try_sandbox()

    def _running(self, store: Store, plan: Plan, shape: Shape, files: RunFiles) -> Runner:
        """What runs the tasks from now on."""

        def tell(ended: Ended) -> None:
            if ended.record.ended:
                files.ended(ended.record, ended.line)

        order, since = self.order, self.order.now()
        asked = first_pace(order.concurrency)
        pace = fitted_pace(asked, shells=plan.shells)
        if pace.ceiling < asked.ceiling:
            self.notice(
                f"at most {pace.ceiling} conversations at once, not {asked.ceiling}: {pace.why}; see `ulimit -Hn`"
            )
        runner = self._runner = Runner(order, store, shape, self.progress, tell, pace=pace, since=since)
        if self.reserve is not None:
            runner.team = Crew(runner, self.reserve, partial(Begin, name=order.name, since=since), store.load)
        return runner

    def __iter__(self) -> Iterator[Result]:
        return in_a_thread(self)

    def first_request(self, task: Task) -> list[dict[str, Any]]:
        """The messages with which a task would begin, as the model would see them."""
        agent = self.order.outfitter.agent
        system = agent.system if task.row.system is None else task.row.system
        head = [{"role": "system", "content": system}] if system else []
        return with_guidance([*head, *(dict(m) for m in task.row.turns[0])], agent.setup.guidance)

    # ── planning ─────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, store: Store | None = None) -> Plan:
        """What is to do, in one pass over the prompts; `BadPrompt` names the first that cannot be asked."""
        if store is None and (self.folder / "stemma.db").exists():
            with open_store(self.folder / "stemma.db") as held:  # a kill may have left it half made
                return self.plan(held)
        statuses: dict[str, str] = {}
        counts: Counter[str] = Counter()
        offers = _Offers()
        columns = columns_of(
            chain(self._metadata_kept(store, statuses, offers), self._metadata(statuses, counts, offers))
        )
        return Plan(
            tasks=counts["tasks"],
            kept=counts["completed"] + counts["stopped"] + (0 if self.order.retry_failed else counts["failed"]),
            failed=counts["failed"] if self.order.retry_failed else 0,
            interrupted=counts["running"],
            columns=Columns(dict(sorted(columns.plain.items())), rest=columns.rest),
            tools=(*TOOL_TO_TOOLSET_MAP, *sorted(offers.tools - TOOL_TO_TOOLSET_MAP.keys())),
            shells=offers.shells,
        )

    def _metadata_kept(
        self, store: Store | None, statuses: dict[str, str], offers: "_Offers"
    ) -> Iterator[dict[str, Any]]:
        """The metadata of every entry there is, also of rows that are not meant now; statuses are noted by the way."""
        for record in records(store, self.order.name) if store is not None else ():
            statuses[record.name] = record.status
            offers.tools.update(record.offered)
            yield {**record.metadata, **own_metadata(msgspec.structs.replace(record, reward=0.0), "", self._policies)}

    def _metadata(
        self, statuses: Mapping[str, str], counts: Counter[str], offers: "_Offers"
    ) -> Iterator[dict[str, Any]]:
        """The metadata of every entry there will be; tasks are counted by the way."""
        self.order.outfitter.check()
        for task in self.order.tasks():
            offers.add(task, self.order.outfitter.tools(task))  # a row may name tools that nobody has
            if task.row.limits is not None and task.row.limits.cost is not None:
                check_prices(self.order.outfitter.agent.setup.model, f"row {task.row.index + 1}: a limit")
            counts["tasks"] += 1
            counts[statuses.get(task.name, "new")] += 1
            record = Record(key=task.row.key, ordinal=task.ordinal, sample=task.sample, reward=0.0)
            yield {**task.row.metadata, **own_metadata(record, "", self._policies)}

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """What differs from the configuration that the run was begun with; nothing if it is new."""
        if not (self.folder / "stemma.db").exists():
            return {}
        with open_store(self.folder / "stemma.db") as store:
            known = _run_metadata(store, self.order.name)
        return changes(known["recipe"], self.recipe) if known else {}

    def check(self) -> None:
        """`ChangedRecipe` if the run was begun otherwise, and nobody said to go on regardless."""
        if not self._amend and (changed := self.changed()):
            raise ChangedRecipe(
                f"the run {self.order.name!r} was begun with another configuration:\n{told(changed)}\n"
                "Make a new run of it (--fork), or go on and leave what has ended as it is (--amend).",
                changed,
            )

    def _begin(self, store: Store, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Write down what the run is; what its statistics say of it. The first of several processes says when."""
        with alone(self.folder):
            return self._written_down(store, plan, shape)

    def _written_down(self, store: Store, plan: Plan, shape: Shape) -> dict[str, Any]:
        known = _run_metadata(store, self.order.name)
        about = {
            "run_name": self.order.name,
            "model": self.order.outfitter.agent.setup.model.name,
            "total_tasks": plan.tasks,
            "batch_size": self._batch_size,
            "started_at": known["about"]["started_at"] if known else self.order.now(),
        }
        unrecorded = {"unrecorded": known["unrecorded"]} if known and "unrecorded" in known else {}
        store.save_run(self.order.name, {"recipe": self.recipe, "about": about, **kept_shape(shape), **unrecorded})
        return about

    def _prepare(self, files: RunFiles, store: Store, plan: Plan) -> None:
        """Tell the files and the display what will come."""
        self.progress.kept, self.progress.to_do, self.progress.retried = plan.kept, plan.to_do, plan.failed
        statuses = {}
        for record in records(store, self.order.name):
            statuses[record.name] = record.status
            self.progress.spent.add(record)
        self.progress.spent.add_unrecorded((_run_metadata(store, self.order.name) or {}).get("unrecorded", {}))
        for task in self.order.tasks():
            files.expect(task.row.index, kept=statuses.get(task.name) in ENDED)


class _Offers:
    """What tasks are offered, all of them together."""

    def __init__(self) -> None:
        self.tools: set[str] = set()
        self.shells = False

    def add(self, task: Task, tools: Sequence[Tool]) -> None:
        self.tools.update(tool.name for tool in tools)
        in_own_image = task.row.image is not None
        self.shells = self.shells or (not in_own_image and any(tool.toolset == "terminal" for tool in tools))


def _run_metadata(store: Store, name: str) -> dict[str, Any] | None:
    return next((run.metadata for run in store.runs() if run.name == name), None)


def _is_under_way(store: Store, task: str) -> bool:
    """Whether a task has neither ended nor failed."""
    try:
        return read_record(store.metadata(task)).status == "running"
    except NotFound:
        return True
