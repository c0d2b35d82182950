"""One task: a conversation from its first prompt, or from wherever it was left, to its end.

Whatever has happened is on disk before the next step starts: the loop yields a fact, and comes to its next step only
when we return for more. After a crash the conversation goes on in the state that was saved; at most one model call and
the tools of one turn are done again. This is where a task's failure becomes data; what the store refuses is no task's
failure, and rises. `tests/batch/test_work.py` and `tests/crash/test_batch.py` prove it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from stemma.agent.agent import Agent, Conversation
from stemma.agent.facts import Asking, Compacted, Fact, Replied, Stopped, ToolRan, ToolStarted
from stemma.batch.plan import Task
from stemma.batch.record import Record, failed, failure_of, noted
from stemma.core.graph import MessageGraph
from stemma.errors import HarnessFailed, StoreError
from stemma.models.retry import persist
from stemma.redact import NOTHING_SECRET
from stemma.tools.failures import exhaustion

Save = Callable[[MessageGraph, Record], Awaitable[None]]
Score = Callable[[Record, Conversation], Awaitable[Record]]
Watch = Callable[[Fact], None]

_GROWN = (Replied, ToolRan, Compacted)
"""Facts after which the graph has something that is not on disk."""
_STEPS = (Asking, ToolStarted)
"""Facts before what is done again if it is not on disk."""


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """What a task is worked on with."""

    agent: Agent
    save: Save
    prepare: Callable[[], Awaitable[None]] | None = None
    """Makes the folder in which the tools work."""
    score: Score | None = None
    watch: Watch = lambda _: None
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time


async def work(task: Task, graph: MessageGraph, record: Record, desk: Desk) -> Record:
    """Do what is left of a task; the record at its end is saved."""
    begun, before = desk.clock(), record.seconds
    book = _Book(graph, record, desk.save)
    time_left, redactor = asyncio.timeout(_left(desk.agent, before)), NOTHING_SECRET
    try:
        await _prepared(desk)
        async with desk.agent.start(graph) as conversation:
            redactor = conversation.workspace.redactor
            async with time_left:
                await _converse(task, conversation, book, desk)
            if desk.score is not None and book.record.ended:
                book.record = await desk.score(book.record, conversation)
    except StoreError:
        raise
    except Exception as problem:  # noqa: BLE001  the boundary: whatever breaks a task is kept as its failure
        if time_left.expired():
            book.note(Stopped("seconds"))
        else:
            known = exhaustion(problem) or problem
            stop = "harness error" if isinstance(known, HarnessFailed) else "error"
            book.record = failed(book.record, failure_of(known, redactor), stop)
    book.record = msgspec.structs.replace(
        book.record, seconds=round(before + desk.clock() - begun, 4), finished=desk.now()
    )
    await book.write()
    return book.record


async def _prepared(desk: Desk) -> None:
    """Make the task's folder; a machine that has nothing left for it now may have some later."""
    setup, prepare = desk.agent.setup, desk.prepare
    if prepare is None:
        return

    async def once(_: int) -> None:
        try:
            await prepare()
        except OSError as problem:
            raise (exhaustion(problem) or problem) from problem

    await persist(once, setup.tool_retries, until=float("inf"), chance=setup.chance)


async def _converse(task: Task, conversation: Conversation, book: "_Book", desk: Desk) -> None:
    """Every turn of the row that has no answer yet."""
    while True:
        record = book.record
        if record.turns_said > record.turns_answered:
            turn: tuple[dict[str, object], ...] = ()  # it was said, and left before its answer
        elif record.turns_said < len(task.row.turns):
            turn = task.row.turns[record.turns_said]
            book.record = msgspec.structs.replace(record, turns_said=record.turns_said + 1, status="running")
        else:
            return
        async for fact in conversation.facts(turn):
            desk.watch(fact)
            book.note(fact)
            if book.is_due(fact):
                await book.write()
        if book.record.status != "completed":
            return


class _Book:
    """The record while it is written, and when it must be on disk."""

    def __init__(self, graph: MessageGraph, record: Record, save: Save) -> None:
        self.graph, self.record, self._save = graph, record, save
        self._unsaved = False
        self._tools_running = 0

    def note(self, fact: Fact) -> None:
        self.record = noted(self.record, fact)
        if isinstance(fact, _GROWN):
            self._unsaved = True
        self._tools_running += isinstance(fact, ToolStarted) - isinstance(fact, ToolRan)

    def is_due(self, fact: Fact) -> bool:
        """Before the next question and before tools run; and while some of them still do."""
        if not self._unsaved:
            return False
        return isinstance(fact, _STEPS) or (isinstance(fact, ToolRan) and self._tools_running > 0)

    async def write(self) -> None:
        await self._save(self.graph, self.record)
        self._unsaved = False


def _left(agent: Agent, spent: float) -> float | None:
    bound = agent.setup.limits.seconds
    return None if bound is None else max(0.0, bound - spent)
