"""How far a run is, for whoever shows it: numbers that move, and what each running task is doing.

`tests/batch/test_progress.py` proves it.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stemma.agent.facts import Asking, Compacted, Fact, Replied, Stopped, ToolRan, ToolStarted
from stemma.batch.record import Record


class Doing(msgspec.Struct):
    """What a task is about just now."""

    text: str
    what: str
    begun: float
    since: float


class Elsewhere(msgspec.Struct, frozen=True):
    """What another process does for the run."""

    running: int
    limit: int
    slowest: list[tuple[str, Doing]]


class Spending(msgspec.Struct):
    """Tokens and dollars."""

    tokens: int = 0
    cost: float | None = None

    def add(self, record: Record, less: Record | None = None) -> None:
        """Count what a task has used, less what was counted of it before."""
        before = less.usage.get("total_tokens", 0) if less else 0
        self.tokens += record.usage.get("total_tokens", 0) - before
        if record.cost is not None:
            self.cost = (self.cost or 0.0) + record.cost - ((less.cost if less else None) or 0.0)

    def add_unrecorded(self, lost: Mapping[str, Any]) -> None:
        """Count what was paid for and is in no record."""
        self.tokens += lost.get("tokens", 0)
        if lost.get("cost"):
            self.cost = (self.cost or 0.0) + lost["cost"]


class Progress:
    """A run as it goes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.begun = clock()
        self.kept = 0
        """Tasks that had ended before this process began."""
        self.to_do = 0
        self.retried = 0
        """Of those, how many had failed before."""
        self.ended: Counter[str] = Counter()
        """Tasks that have ended since, by status."""
        self.errors: Counter[str] = Counter()
        self.spent = Spending()
        """By the whole run, kept tasks included."""
        self.doing: dict[str, Doing] = {}
        """Tasks that run in this process."""
        self.elsewhere: dict[int, Elsewhere] = {}
        """What each helper last said."""
        self.answered = 0
        """Questions that the model has answered in this process."""
        self.limit = 0
        """How many may run in this process."""
        self.limit_why = ""
        self.stopping: str | None = None
        """Why no more tasks are started."""
        self.latest: deque[Record] = deque(maxlen=8)

    @property
    def done(self) -> int:
        """Tasks that have come to an end since."""
        return sum(self.ended.values())

    @property
    def running(self) -> int:
        """Tasks that run now, in all processes."""
        return len(self.doing) + sum(other.running for other in self.elsewhere.values())

    @property
    def at_once(self) -> int:
        """How many may run, in all processes."""
        return self.limit + sum(other.limit for other in self.elsewhere.values())

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self.clock() - self.begun

    @property
    def rate(self) -> float:
        """Tasks a second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the end, at this rate."""
        return (self.to_do - self.done) / self.rate if self.done else None

    def started(self, name: str, text: str) -> None:
        now = self.clock()
        self.doing[name] = Doing(text, "starting", now, now)

    def fact(self, name: str, fact: Fact) -> None:
        self.answered += isinstance(fact, Replied)
        what = _what(fact)
        if what and name in self.doing:
            self.doing[name].what, self.doing[name].since = what, self.clock()

    def waits(self, name: str, problem: Exception, seconds: float) -> None:
        if name in self.doing:
            self.doing[name].what = f"{type(problem).__name__}, tries again in {seconds:.0f} s"
            self.doing[name].since = self.clock()

    def finished(self, record: Record, before: Record) -> None:
        self.doing.pop(record.name, None)
        self.ended[record.status] += 1
        self.spent.add(record, before)
        if record.status == "failed" and record.failure:
            self.errors[record.failure.kind] += 1
        if record.reward_failure is not None:
            self.errors[f"reward: {record.reward_failure.kind}"] += 1
        self.latest.append(record)

    def slowest(self, number: int) -> list[tuple[str, Doing]]:
        """The tasks that have been running longest."""
        others = (one for other in self.elsewhere.values() for one in other.slowest)
        return sorted([*self.doing.items(), *others], key=lambda item: item[1].begun)[:number]


def _what(fact: Fact) -> str:
    match fact:
        case Asking(turn):
            return f"asks the model, turn {turn}"
        case ToolStarted():
            return f"runs {fact.name}"
        case ToolRan() | Replied() | Compacted() | Stopped():
            return ""
