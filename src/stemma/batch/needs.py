"""What a run needs of this machine, looked at before the first question is paid for.

    descriptors    the soft limit (`ulimit -n`) is raised to what so many conversations need; where the hard limit does
                   not allow that, fewer run at once
    sandbox        if commands are offered, one is started: installed is not enough where namespaces are forbidden

MCP servers have answered by then: a run knows their tools from them. `tests/batch/test_needs.py` proves it.
"""

import os
import resource
from contextlib import suppress

import msgspec

from stemma.batch.gate import Pace, bounded

PER_TASK, WITH_SHELL = 4, 8
"""Descriptors of one conversation: its connection and a few files; with a shell, its pipes and its process as well."""
SPARE = 64
"""Descriptors beside those of conversations and those open already: the store, files, processes on their way."""


class Descriptors(msgspec.Struct, frozen=True):
    """How many descriptors this process has, and may have."""

    open: int
    soft: int
    hard: int


class Fitted(msgspec.Struct, frozen=True):
    """How many conversations may run at once with so many descriptors."""

    soft: int
    at_once: int


def fit(wanted: int, each: int, now: Descriptors) -> Fitted:
    """The limit that `wanted` conversations of `each` descriptors need; fewer of them if that cannot be had.

    >>> fit(300, 8, Descriptors(open=20, soft=1024, hard=4096))
    Fitted(soft=2484, at_once=300)
    >>> fit(300, 8, Descriptors(open=20, soft=1024, hard=1024))
    Fitted(soft=1024, at_once=117)
    """
    taken = now.open + SPARE
    soft = max(now.soft, min(taken + wanted * each, now.hard))
    return Fitted(soft, max(1, min(wanted, (soft - taken) // each)))


def fitted_pace(pace: Pace, *, shells: bool) -> Pace:
    """`pace` with no more at once than this process has descriptors for; their limit is raised as far as needed."""
    now = _descriptors()
    each = WITH_SHELL if shells else PER_TASK
    found = fit(pace.ceiling, each, now)
    if found.soft > now.soft and not _raised(found.soft, now.hard):
        found = fit(pace.ceiling, each, msgspec.structs.replace(now, hard=now.soft))
    if found.at_once >= pace.ceiling:
        return pace
    return msgspec.structs.replace(bounded(pace, found.at_once), why=f"{found.soft} descriptors allow no more")


def _descriptors() -> Descriptors:
    soft, hard = (_number(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    return Descriptors(len(os.listdir("/dev/fd")), soft, hard)


def _number(limit: int) -> int:
    return 1 << 62 if limit == resource.RLIM_INFINITY else limit


def _raised(soft: int, hard: int) -> bool:
    with suppress(ValueError, OSError):  # some systems have a limit of their own below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.RLIM_INFINITY if hard == 1 << 62 else hard))
        return True
    return False
