"""Work for `test_ahead.py` that a process can be sent by its name."""

import os
import signal


def who(batch: int) -> tuple[int, int]:
    """Twice the batch, and the process that found that out."""
    return 2 * batch, os.getpid()


def killed_on(batch: tuple[int, int]) -> int:
    """Twice the number, unless this is not the process it comes with: then, from 20 on, somebody kills it."""
    number, parent = batch
    if os.getpid() != parent and number >= 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def refused(batch: int) -> int:
    """Fails late."""
    if batch == 25:
        raise ValueError("25 is too much")
    return batch
