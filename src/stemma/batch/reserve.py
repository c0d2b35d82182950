"""A process in reserve: forked early, with all modules loaded, it waits and forks a helper whenever it is called.

It is forked before there are threads, event loops, connections or open files that a fork would tear. A helper is then
there in milliseconds, and knows what its parent knew. Every helper has a line of its own (a socket) to who called it.
The reserve and its helpers hear no Ctrl-C: they end when their line does, so none outlives the one who called, however
that ends. `tests/batch/test_reserve.py` proves it with real processes.
"""

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Help = Callable[[socket.socket], None]
"""What a helper does, with its end of the line."""


class Reserve:
    """The waiting process, as its parent has it."""

    def __init__(self, process: int, calls: socket.socket, most: int) -> None:
        self._process, self._calls = process, calls
        self.most = most
        """How many processes a run may have in all."""

    def call(self) -> socket.socket | None:
        """The line to a new helper; None if the reserve is gone."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._calls, [b"!"], [theirs.fileno()])
        except OSError:
            ours.close()
            return None
        return ours

    def close(self) -> None:
        """Call no more; all helpers have ended when this returns."""
        self._calls.close()
        os.waitpid(self._process, 0)


@contextmanager
def reserved(most: int, help_out: Help) -> Iterator[Reserve | None]:
    """A process in reserve while the block runs; None where none is wanted, or where a fork may break what it copies:
    with threads, and on systems whose own libraries have some."""
    if most < 2 or sys.platform != "linux" or threading.active_count() > 1:
        yield None
        return
    reserve = _open(most, help_out)
    try:
        yield reserve
    finally:
        reserve.close()


def _open(most: int, help_out: Help) -> Reserve:
    ours, theirs = socket.socketpair()

    def wait() -> None:
        ours.close()
        _wait_for_calls(theirs, help_out)

    process = _forked(wait)
    theirs.close()
    return Reserve(process, ours, most)


def _wait_for_calls(calls: socket.socket, help_out: Help) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # not SIG_IGN: programs that a tool starts would inherit that
    while lines := socket.recv_fds(calls, 1, 1)[1]:
        with socket.socket(fileno=lines[0]) as line:
            _fork_helper(calls, line, help_out)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _fork_helper(calls: socket.socket, line: socket.socket, help_out: Help) -> None:
    def work() -> None:
        calls.close()
        help_out(line)

    _forked(work)


def _forked(work: Callable[[], None]) -> int:
    """A process that does this, and nothing of what its parent would do next."""
    if process := os.fork():
        return process
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  above this there is only the parent's own work
        traceback.print_exc()
    finally:
        os._exit(code)
