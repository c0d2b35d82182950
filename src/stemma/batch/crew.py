"""The helpers of a run, as its chief has them: called when one processor is not enough, told, heard, never left behind.

A helper is a process that runs the same tasks; claims decide who has which. Its share of how many may run at once comes
out of the chief's, and only as the chief's own tasks end, so that the sum is never more than was asked for. Only the
chief writes files, shows and counts: every task that ends elsewhere is told here. What a killed helper had taken is
free again, and the chief does it. `tests/batch/test_helpers.py` and `tests/crash/test_batch_helpers.py` prove it.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from functools import partial

from stemma.batch.busy import Reading, begins_window, ends_window, needs_help
from stemma.batch.gate import bounded, parted
from stemma.batch.line import Begin, Cancel, Done, Failed, Line, Message, Room, Stop
from stemma.batch.order import Ended
from stemma.batch.progress import Elsewhere
from stemma.batch.reserve import ENDS_WITHIN, Reserve
from stemma.batch.runner import Runner
from stemma.core.graph import MessageGraph

LOOKS_EVERY = 0.02
"""Seconds between two looks at how busy we are."""


class Helper:
    """One of them."""

    def __init__(self, number: int, line: Line, share: int) -> None:
        self.number, self.line, self.share = number, line, share
        self.given = 0
        """How much of its share it has."""
        self.is_done = False


class Crew:
    """All of them."""

    def __init__(
        self,
        runner: Runner,
        reserve: Reserve,
        begin: Callable[..., Begin],
        load: Callable[[str], MessageGraph],
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        """Helpers of a runner, none yet.

        begin: what a helper is told first, but for its pace
        load: a conversation that ended elsewhere, by its name
        """
        self._runner, self._reserve, self._begin, self._load, self._worked = runner, reserve, begin, load, worked
        self._most = min(reserve.most, runner.gate.pace.ceiling)
        self._total = runner.gate.pace.ceiling
        self._called = 0
        self._helpers: list[Helper] = []
        self._with_us: set[asyncio.Task[None]] = set()
        self._lost = False
        """Whether a helper has left tasks behind."""
        self._cancelled = False
        self._seeing_to_it: asyncio.Task[None] | None = None
        self._looking = asyncio.ensure_future(self._look())

    # ── what the runner wants ────────────────────────────────────────────────────────────────────────────────

    def stop(self, why: str) -> None:
        self._looking.cancel()
        self._say(Stop(why))
        self._seeing_to_it = self._seeing_to_it or asyncio.ensure_future(self._see_that_they_end())

    def cancel(self) -> None:
        self._say(Cancel())
        self._cancelled = True

    async def _see_that_they_end(self) -> None:
        """Kill helpers that cannot end because they are stopped, and all that do not leave their tasks when told to.

        What one had taken is free then, and is done when the run goes on.
        """
        waited = 0.0
        while self._with_us:
            self._reserve.kill_stopped()
            waited += ENDS_WITHIN / 20 if self._cancelled else 0.0
            if waited > ENDS_WITHIN:
                self._reserve.kill()
            await asyncio.sleep(ENDS_WITHIN / 20)

    def share_room(self) -> None:
        """Give helpers what they lack of their share, as far as it is free."""
        for helper in self._helpers:
            if (more := min(helper.share - helper.given, self._free())) > 0:
                helper.given += more
                helper.line.say(Room(helper.given))

    def _free(self) -> int:
        """Places that are neither given nor ours; none while we have more tasks than our share."""
        ours = max(self._runner.gate.pace.ceiling, self._runner.occupied)
        return max(0, self._total - ours - sum(helper.given for helper in self._helpers))

    async def ended(self) -> bool:
        while self._with_us:
            await asyncio.wait(self._with_us)
        lost, self._lost = self._lost, False
        return lost

    def _say(self, message: Message) -> None:
        for helper in self._helpers:
            helper.line.say(message)

    # ── calling ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _look(self) -> None:
        """Call helpers, one after the other, as long as the loop's thread is busy."""
        first = self._reading()
        while self._called + 1 < self._most:
            await asyncio.sleep(LOOKS_EVERY)
            last = self._reading()
            if not begins_window(first):
                first = last
            elif ends_window(first, last):
                if needs_help(first, last):
                    self._call()
                first = last

    def _reading(self) -> Reading:
        progress = self._runner.progress
        return Reading(
            at=progress.clock(),
            worked=self._worked(),
            answered=progress.answered,
            running=len(progress.doing),
            waiting=progress.to_do - progress.done - progress.running,
        )

    def _call(self) -> None:
        self._called += 1
        if (end := self._reserve.call()) is not None:
            accompanying = asyncio.ensure_future(self._accompany(end))
            self._with_us.add(accompanying)
            accompanying.add_done_callback(self._with_us.discard)

    def _welcome(self, line: Line) -> Helper:
        """Share with a new helper, and let it begin."""
        gate = self._runner.gate
        stays, given = parted(gate.pace, self._most - len(self._helpers))
        gate.change(stays)
        helper = Helper(self._called, line, given.ceiling)
        helper.given = min(helper.share, self._free())
        self._helpers.append(helper)
        line.say(self._begin(pace=bounded(given, helper.given)))
        return helper

    def _part(self, helper: Helper) -> None:
        """Take back what a helper had: its share, and what it has left undone."""
        self._helpers.remove(helper)
        self._runner.progress.elsewhere.pop(helper.number, None)
        self._lost = self._lost or not helper.is_done
        pace = self._runner.gate.pace
        self._runner.gate.change(bounded(pace, pace.ceiling + helper.share))

    # ── hearing ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _accompany(self, end: socket.socket) -> None:
        """Go with a helper from its first word to its last."""
        line = await Line.over(end)
        try:
            if not self._runner.progress.stopping:
                await self._hear(self._welcome(line))
        except Exception as problem:  # noqa: BLE001  what breaks here would break in the chief's own tasks
            self._runner.fail(problem)
        finally:
            await line.close()

    async def _hear(self, helper: Helper) -> None:
        try:
            while (message := await helper.line.hear()) is not None:
                self._take(helper, message)
        finally:
            self._part(helper)

    def _take(self, helper: Helper, message: Message) -> None:
        match message:
            case Ended(record):
                self._runner.take(message, partial(self._load, record.name))
            case Elsewhere():
                self._runner.progress.elsewhere[helper.number] = message
            case Failed(problem):
                self._runner.fail(problem)
            case Done():
                helper.is_done = True
