"""Scoring: a user's function says how good a conversation was.

`module:function` or a function, sync or async. It gets a `Scored` and returns a number, or an object with a `reward`
and whatever else should be kept beside it. A function that raises anything at all, or changes the working folder of the
process (`tools/calling.py`), leaves the conversation unscored, with the reason;
the conversation is not touched, and can be scored again later. `tests/batch/test_rewards.py` proves it.
"""

import importlib
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stemma.batch.record import Record, failure_of
from stemma.core.canonical import plain
from stemma.core.graph import MessageGraph
from stemma.errors import StemmaError
from stemma.redact import NOTHING_SECRET, Redactor
from stemma.tools.calling import outcome_of

Reward = Callable[["Scored"], Any]


class BadReward(StemmaError):
    """A reward function that cannot be found, or that gives no number."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """What a reward function sees."""

    graph: MessageGraph
    record: Record
    folder: Path | None = None
    """The conversation's working folder as its tools left it; None when it is scored again later."""

    @property
    def answer(self) -> str | None:
        """The last answer, if the conversation came to one."""
        return str(self.graph[-1]["content"]) if self.record.status == "completed" else None

    @property
    def metadata(self) -> dict[str, Any]:
        """The row's other columns, such as the right answer."""
        return self.record.metadata

    @property
    def completed(self) -> bool:
        """Whether every prompt was answered."""
        return self.record.status == "completed"


def load_reward(address: str, folder: Path) -> Reward:
    """The function at `module:function`; modules are also looked for in `folder`."""
    module_name, _, name = address.partition(":")
    if not module_name or not name:
        raise BadReward(f"a reward function is named as module:function, such as scoring:exact; got {address!r}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found = getattr(importlib.import_module(module_name.removesuffix(".py")), name)
    except (ImportError, AttributeError) as problem:
        raise BadReward(f"cannot find the reward function {address!r}: {problem}") from problem
    if not callable(found):
        raise BadReward(f"{address!r} is no function")
    function: Reward = found
    return function


async def score(function: Reward, scored: Scored, redactor: Redactor = NOTHING_SECRET) -> Record:
    """The record with its reward, or with the reason why it has none; without the secrets that `redactor` knows."""
    try:
        outcome = await outcome_of(function, scored)
        if outcome.problem is not None:
            return _unscored(scored.record, outcome.problem, redactor)
        reward, scores = _read(outcome.value, redactor)
    except Exception as problem:  # noqa: BLE001  a reward function is the user's; what it raises is kept as data
        return _unscored(scored.record, problem, redactor)
    return msgspec.structs.replace(scored.record, reward=reward, scores=redactor.value(scores), reward_failure=None)


def _unscored(record: Record, problem: BaseException, redactor: Redactor) -> Record:
    return msgspec.structs.replace(record, reward=None, scores={}, reward_failure=failure_of(problem, redactor))


def _read(said: Any, redactor: Redactor) -> tuple[float, dict[str, Any]]:
    given = dict(said) if isinstance(said, Mapping) else {"reward": said}
    reward = given.pop("reward", None)
    if isinstance(reward, bool):
        reward = float(reward)
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        raise BadReward(
            f"a reward is a finite number, or an object with one as `reward`; got {redactor.start(repr(said), 80)}"
        )
    return float(reward), plain(given, "scores")
