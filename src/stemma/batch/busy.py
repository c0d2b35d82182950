"""When one processor is not enough, decided purely: whether another process should help.

An event loop has one thread. While that works nearly all the time, tasks wait for it and not for the endpoint, and
another process can take a share of them. A slow endpoint, or a model in threads of its own, leaves it idle: then more
processes would change nothing.

    64 at once, instant replies   0.11 s of the last 0.12 s were work, 900 tasks wait   →  another process
    200 at once, 1 s a reply      0.25 s of the last 1.10 s were work                   →  none

A window is as long as the endpoint takes: it begins after the first answer, and ends when as many more have come as
tasks ran. So the rush in which many begin at once is not taken for the rule. `tests/batch/test_busy.py` proves it.
"""

import msgspec

BUSY = 0.6
"""From this share of the time on a thread is busy: beside its work it waits for the disk, and for others' turns."""
SHORTEST = 0.1
"""Seconds of a window at least."""
WORTH_IT = 100
"""So many tasks must wait: fewer are done before a helper is."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    at: float
    worked: float
    """Seconds for which the loop's thread has had a processor."""
    answered: int
    """Questions to the model."""
    running: int
    waiting: int
    """Tasks that nobody has begun."""


def begins_window(first: Reading) -> bool:
    """Whether what comes after this can be judged."""
    return first.answered > 0 and first.running > 0


def ends_window(first: Reading, last: Reading) -> bool:
    """Whether enough has come since to judge by it."""
    return last.at - first.at >= SHORTEST and last.answered - first.answered >= first.running


def needs_help(first: Reading, last: Reading) -> bool:
    """Whether one process is too few, by what it did in a window."""
    busy = (last.worked - first.worked) / (last.at - first.at)
    return busy >= BUSY and last.waiting >= WORTH_IT
