"""How many at once: begin slowly, grow while it goes well, back off when the endpoint says that it is too much.

    slow start   every success makes room for one more: the number doubles with each round
    pressure     a 429 takes a fifth away, once a second at most, and ends the slow start
    afterwards   one more for every round of successes

A 5xx or a lost connection pauses growth and takes nothing away: fewer questions do not mend a broken server. A machine
that has no descriptors, processes, memory or disk left is pressure like a 429.
The numbers are decided by pure functions; `Gate` only lets through and makes wait.
`tests/batch/test_gate.py` proves it.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from stemma.errors import OutOfResources
from stemma.models.errors import RateLimited
from stemma.models.retry import Passing

SHARE_KEPT = 0.8
CALM_SECONDS = 1.0


class Pace(msgspec.Struct, frozen=True):
    """How many may be under way, and why."""

    limit: int
    ceiling: int
    starting: bool = True
    """Whether it still grows fast."""
    credit: int = 0
    """Successes since it last grew."""
    cut_at: float = float("-inf")
    why: str = "starting"


def after_success(pace: Pace) -> Pace:
    """One more went well while all places were taken."""
    if pace.limit >= pace.ceiling:
        return pace
    needed = 1 if pace.starting else pace.limit
    if pace.credit + 1 < needed:
        return msgspec.structs.replace(pace, credit=pace.credit + 1)
    return msgspec.structs.replace(pace, limit=pace.limit + 1, credit=0, why="going well")


def after_trouble(pace: Pace, problem: Passing, now: float) -> Pace:
    """An attempt failed and will be made again."""
    if not isinstance(problem, RateLimited | OutOfResources):
        return msgspec.structs.replace(pace, starting=False, credit=0, why=f"no growth: {type(problem).__name__}")
    if now - pace.cut_at < CALM_SECONDS:
        return pace
    fewer = max(1, int(pace.limit * SHARE_KEPT))
    why = "rate limited" if isinstance(problem, RateLimited) else "this machine is at its limits"
    return msgspec.structs.replace(pace, limit=fewer, starting=False, credit=0, cut_at=now, why=why)


def bounded(pace: Pace, ceiling: int) -> Pace:
    """With another ceiling; a limit that was at the old one goes along.

    >>> bounded(Pace(64, 64), 48).limit, bounded(Pace(20, 64), 48).limit
    (48, 20)
    """
    limit = ceiling if pace.limit == pace.ceiling else min(pace.limit, ceiling)
    return msgspec.structs.replace(pace, limit=limit, ceiling=ceiling)


def parted(pace: Pace, among: int) -> tuple[Pace, Pace]:
    """What stays, and what another gets: one of `among` equal parts.

    >>> [(part.limit, part.ceiling) for part in parted(Pace(40, 64), 4)]
    [(30, 48), (10, 16)]
    """
    limit, ceiling = max(1, pace.limit // among), pace.ceiling // among
    stays = msgspec.structs.replace(pace, limit=max(1, pace.limit - limit), ceiling=pace.ceiling - ceiling)
    return stays, msgspec.structs.replace(pace, limit=limit, ceiling=ceiling)


class Gate:
    """Lets so many through at once."""

    def __init__(self, pace: Pace, clock: Callable[[], float], grown: Callable[[], None] = lambda: None) -> None:
        self.pace = pace
        self.inside = 0
        self.wanted = False
        """Whether more would be begun if the limit were higher, also while some of those under way ask nothing."""
        self._clock, self._grown = clock, grown
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        """A place inside, as soon as there is one."""
        if self.inside < self.pace.limit and not self._waiting:
            self.inside += 1
        else:
            await self._turn()

    async def __aexit__(self, *exc: object) -> None:
        self.inside -= 1
        if self._waiting:
            self._admit()

    def went_well(self) -> None:
        """A question was answered."""
        if self.wanted or self.inside >= self.pace.limit:  # with places to spare, more would change nothing
            self.pace = after_success(self.pace)
            self._admit()
            self._grown()

    def troubled(self, problem: Passing) -> None:
        """A question, or a tool call, has to be tried again."""
        self.pace = after_trouble(self.pace, problem, self._clock())

    def change(self, pace: Pace) -> None:
        """Go on at another pace."""
        self.pace = pace
        self._admit()
        self._grown()

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.inside -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.inside < self.pace.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.inside += 1
                turn.set_result(None)
