"""Running a batch: the tasks that have not ended, many at once, each to its end, as far as one process does it.

The store is the one truth. Which tasks have ended is read from it, every step of every task is in it before the next
begins, and all files are made from it; there is no checkpoint beside it. Stopping, however it happens, therefore loses
nothing but the steps in flight, and running the same again goes on. `tests/batch/test_runner.py` and
`tests/crash/test_batch.py` prove it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from stemma.agent.agent import Conversation
from stemma.agent.limits import LimitReached, Spent
from stemma.batch.claims import Claims
from stemma.batch.gate import Gate, Pace
from stemma.batch.order import Ended, Order, Result
from stemma.batch.outfit import own_toolsets
from stemma.batch.outputs import Shape, exported_line
from stemma.batch.paced import PacedModel
from stemma.batch.places import Places
from stemma.batch.plan import Task, fresh_record
from stemma.batch.progress import Progress, Spending
from stemma.batch.record import Record, as_metadata, read_record
from stemma.batch.rewards import Scored, score
from stemma.batch.team import Alone, Team
from stemma.batch.work import Desk, work
from stemma.core.graph import MessageGraph
from stemma.errors import NotFound, StoreError
from stemma.models.retry import Passing, watcher
from stemma.store import Store
from stemma.store.together import Together

CEILING = 512
"""How many conversations at once, if nobody says."""
START = 16


def first_pace(concurrency: int | None) -> Pace:
    """The pace to begin with: what was asked for, or a slow start."""
    if concurrency is None:
        return Pace(START, CEILING)
    return Pace(concurrency, concurrency, starting=False, why="as asked")


class Runner:
    """One process of a run."""

    def __init__(
        self,
        order: Order,
        store: Store,
        shape: Shape,
        progress: Progress,
        tell: Callable[[Ended], None],
        *,
        pace: Pace,
        since: float,
    ) -> None:
        """A runner.

        tell: is told of every task that comes to its end, before its result is given
        since: when the run was begun or taken up; what has failed since is not tried again
        """
        self.order, self._store, self._shape, self.progress, self._tell = order, store, shape, progress, tell
        self._since = since
        self.team: Team = Alone()
        self._room = asyncio.Event()
        self.gate = Gate(pace, order.clock, grown=self._room.set)
        self.spent = Spent(order.clock, tokens=progress.spent.tokens, cost=progress.spent.cost, at_once=None)
        """What the whole run has used, and what calls in flight may use."""
        self._saves = Together(store)
        self._places: Places
        self._running: set[asyncio.Task[None]] = set()
        self.with_others: set[str] = set()
        """Tasks that another process had when it was their turn here."""
        self._results: asyncio.Queue[Result | None] = asyncio.Queue()
        self._problem: BaseException | None = None
        """What ended the run before its time."""
        self._clearing = ThreadPoolExecutor(1, "clearing")
        self.loop = asyncio.get_running_loop()

    def stop(self, why: str) -> None:
        """Start no more tasks; those that run come to their end."""
        self.progress.stopping = self.progress.stopping or why
        self.team.stop(why)
        self._room.set()

    def cancel(self) -> None:
        """Leave the running tasks where they are; they go on when the run does."""
        self.stop("cancelled")
        self.team.cancel()
        for task in self._running:
            task.cancel()

    def fail(self, problem: BaseException) -> None:
        """End the run; `problem` rises when all that runs has ended."""
        self._problem = self._problem or problem
        self.stop(f"{type(problem).__name__}: {problem}")

    def take(self, ended: Ended, load: Callable[[], MessageGraph]) -> None:
        """A task has come to its end, here or in a helper."""
        self._tell(ended)
        self.progress.finished(ended.record, ended.before)
        self._results.put_nowait(Result(ended.record, load))

    @property
    def occupied(self) -> int:
        """How many places are taken; more than there are, if there were more a moment ago."""
        return max(len(self._running), self.gate.inside)

    async def results(self) -> AsyncGenerator[Result, None]:
        """Every task that ends, as it ends; all that is left to do is done when this is."""
        self._places = Places(self.order.folder)
        claims = Claims(self.order.folder / "claims.lock")
        dispatching = asyncio.ensure_future(self._dispatch(claims))
        dispatching.add_done_callback(lambda _: self._results.put_nowait(None))
        try:
            while (result := await self._results.get()) is not None:
                yield result
                self._room.set()
            await dispatching
            if self._problem is not None:
                raise self._problem
        finally:
            if not dispatching.done():
                self.cancel()
            self.team.stop("the run has ended")
            await asyncio.gather(dispatching, *self._running, self.team.ended(), return_exceptions=True)
            self._saves.flush()  # of tasks that were cancelled while they waited
            claims.close()
            await asyncio.to_thread(self._clearing.shutdown)
            self._places.close()

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _dispatch(self, claims: Claims) -> None:
        """Start what is free; and again, if a helper was lost with what it had taken."""
        await self._start_free_tasks(claims)
        while await self.team.ended() and not self.progress.stopping:
            await self._start_free_tasks(claims)

    async def _start_free_tasks(self, claims: Claims) -> None:
        for task in self.order.tasks():
            await self._wait_for_room()
            if self.progress.stopping:
                break
            if claims.take(task.name):
                self.with_others.discard(task.name)
                started = self._start_if_open(task, claims)
            else:
                self.with_others.add(task.name)
                started = False
            if not started:
                await asyncio.sleep(0)  # a thousand tasks that others have must not keep ours waiting
        while self._running:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    def _start_if_open(self, task: Task, claims: Claims) -> bool:
        """Start a task that is ours now, unless somebody has brought it to its end before."""
        record = self._last_record(task) or self._first_record(task)
        if self._is_open(record):
            self._start(task, record, claims)
            return True
        if record.ended:
            self._clear(task.name)  # a crash may have come between its end and this
        claims.release(task.name)
        return False

    def _is_open(self, record: Record) -> bool:
        if record.status == "failed":
            return self.order.retry_failed and (record.finished or 0.0) <= self._since
        return not record.ended

    def _last_record(self, task: Task) -> Record | None:
        """What the store says of a task; None if it was never begun."""
        try:
            return read_record(self._store.metadata(task.name))
        except NotFound:
            return None

    def _first_record(self, task: Task) -> Record:
        tools, names = self.order.outfitter.tools(task), self.order.outfitter.toolsets(task)
        toolsets = own_toolsets(tools) if names is None else names
        record = fresh_record(task, self.order.recipe, toolsets, self.order.seed)
        return msgspec.structs.replace(record, offered=[tool.name for tool in tools])

    async def _wait_for_room(self) -> None:
        """Until another task may run."""
        while not self.progress.stopping:
            self.progress.limit, self.progress.limit_why = self.gate.pace.limit, self.gate.pace.why
            if (limit := self.spent.reached(self.order.budget.limits)) is not None:
                self._out_of_budget(LimitReached(limit, self.spent.why(limit)))
                return
            if len(self._running) + self._results.qsize() < self.gate.pace.limit:
                return
            self._room.clear()
            self.gate.wanted = True
            await self._room.wait()
            self.gate.wanted = False

    def _start(self, task: Task, record: Record, claims: Claims) -> None:
        self.progress.started(task.name, task.row.text)
        running = asyncio.ensure_future(self._run(task, record, claims))
        self._running.add(running)
        running.add_done_callback(self._left)

    def _left(self, running: "asyncio.Task[None]") -> None:
        self._running.discard(running)
        problem = None if running.cancelled() else running.exception()
        if problem is not None:
            self.fail(problem)
        self._room.set()
        self.team.share_room()

    # ── one task ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, task: Task, before: Record, claims: Claims) -> None:
        try:
            graph = self._store.load(task.name) if before.attempts else MessageGraph()
            watcher.set(partial(self._waits, task.name))
            record = msgspec.structs.replace(before, attempts=before.attempts + 1)
            record = await work(task, graph, record, self._desk(task, record))
            if record.ended or not record.tools:
                self._clear(task.name)
            else:
                await _in_thread(self._places.keep, task.name)
            line, now = exported_line(graph, record, self._shape)
            if now != record:
                await self._save(graph, now)
            self.take(Ended(now, before, line), lambda: graph)
        except BaseException:
            with suppress(StoreError):  # which may be why
                self._leave(task)
            raise
        finally:
            self.progress.doing.pop(task.name, None)
            claims.release(task.name)

    def _leave(self, task: Task) -> None:
        """A task is interrupted: its files are kept if its tools have changed them, else made anew when it goes on."""
        record = self._last_record(task)
        if record is not None and record.tools and not record.ended:
            self._places.keep(task.name)
        else:
            self._places.clear(task.name)

    def _out_of_budget(self, reached: LimitReached) -> None:
        used_up = self.order.budget.exceeded(Spending(self.spent.tokens, self.spent.cost))
        self.stop(reached.detail or used_up or "the budget is used up")

    def _model(self) -> PacedModel:
        """The model of the task that is running: when the run has no more to spend, the task is left where it is."""
        running, model = asyncio.current_task(), self.order.outfitter.agent.setup.model
        assert running is not None

        def leave(reached: LimitReached) -> None:
            self._out_of_budget(reached)
            if not running.cancelling():  # by another of its subagents
                running.cancel()

        if not self.order.budget:
            return PacedModel(model, self.gate)
        return PacedModel(model, self.gate, self.spent, self.order.budget.limits, leave)

    def _desk(self, task: Task, record: Record) -> Desk:
        place = self._places.path(task.name)
        agent = self.order.outfitter.agent_for(task, record, place).changed(model=self._model())
        return Desk(
            agent=agent,
            prepare=lambda: self._furnish(task),
            save=self._save,
            score=self._score if self.order.reward is not None else None,
            watch=lambda fact: self.progress.fact(task.name, fact),
            clock=self.order.clock,
            now=self.order.now,
        )

    async def _furnish(self, task: Task) -> None:
        """Make the task's folder with what is to be in it; a thread copies what may be large."""
        if task.row.cwd is None:
            self._places.furnish(task.name, task.row)
        else:
            await _in_thread(self._places.furnish, task.name, task.row)

    def _clear(self, name: str) -> None:
        if not self._places.cleared_at_once(name):
            self._clearing.submit(self._places.clear, name)

    def _waits(self, name: str, problem: Passing, seconds: float) -> None:
        """A question or a tool call of a task failed, and will be tried again."""
        self.gate.troubled(problem)
        self.progress.waits(name, problem, seconds)

    async def _save(self, graph: MessageGraph, record: Record) -> None:
        await self._saves.save(graph, record.name, run=self.order.name, metadata=as_metadata(record))

    async def _score(self, record: Record, conversation: Conversation) -> Record:
        assert self.order.reward is not None
        return await score(
            self.order.reward,
            Scored(graph=conversation.graph, record=record, folder=conversation.workspace.root),
            conversation.workspace.redactor,
        )


async def _in_thread(do: Callable[..., None], *given: Any) -> None:
    """Do it in a thread, to its end: who is cancelled meanwhile must not find it still at work on his files."""
    work = asyncio.ensure_future(asyncio.to_thread(do, *given))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        raise
