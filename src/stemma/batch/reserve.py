"""A process in reserve: forked early, with all modules loaded, it waits and forks a helper whenever it is called.

It is forked before there are threads, event loops, connections or open files that a fork would tear. A helper is then
there in milliseconds, and knows what its parent knew. Every helper has a line of its own (a socket) to who called it.
The reserve and its helpers hear no Ctrl-C: they end when their line does, so none outlives the one who called, however
that ends. One that cannot hear, because somebody has stopped it (SIGSTOP), is killed instead of waited for.
`tests/batch/test_reserve.py` proves it with real processes.
"""

import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ENDS_WITHIN = 5.0
"""Seconds that helpers have to end when they are told to."""
LOOKS_EVERY = 0.01
"""Seconds between two looks whether the reserve has ended."""
_NUMBER = struct.Struct("!I")

Help = Callable[[socket.socket], None]
"""What a helper does, with its end of the line."""


class Reserve:
    """The waiting process, as its parent has it."""

    def __init__(self, process: int, calls: socket.socket, most: int) -> None:
        self._process, self._calls = process, calls
        self._helpers: list[int] = []
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

    def kill_stopped(self) -> None:
        """Kill those processes that are stopped (SIGSTOP) and so would never end."""
        for process in self._processes():
            if _state(process)[0] in ("T", "t"):
                self._kill(process)

    def kill(self) -> None:
        """Kill every helper: they were asked to end, and do not. The reserve ends with them, or is killed alone."""
        *helpers, reserve = self._processes()
        for process in helpers or [reserve]:
            self._kill(process)

    def close(self) -> None:
        """Call no more; all helpers have ended when this returns."""
        with suppress(OSError):
            self._calls.shutdown(socket.SHUT_WR)
        until = time.monotonic() + ENDS_WITHIN
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() < until:
                self.kill_stopped()
            else:
                self.kill()
            time.sleep(LOOKS_EVERY)
        self._calls.close()

    def _processes(self) -> list[int]:
        """The helpers that there are, and the reserve last."""
        with suppress(OSError):
            while said := self._calls.recv(_NUMBER.size, socket.MSG_DONTWAIT):
                self._helpers.append(_NUMBER.unpack(said)[0])
        # Asked for the parent: once it is gone, the number of a helper may be that of somebody else's process.
        states = {helper: _state(helper) for helper in self._helpers}
        alive = [helper for helper, (state, parent) in states.items() if state != "Z" and parent == self._process]
        return [*alive, self._process]

    def _kill(self, process: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


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


def _state(process: int) -> tuple[str, int]:
    """The state of a process as the system writes it, and its parent."""
    try:
        with open(f"/proc/{process}/stat", encoding="latin-1") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except OSError:  # it has ended
        return "", 0
    return state, int(parent)


def _fork_helper(calls: socket.socket, line: socket.socket, help_out: Help) -> None:
    def work() -> None:
        calls.close()
        help_out(line)

    with suppress(OSError):  # who called is gone, and our next look at the line will say so
        calls.sendall(_NUMBER.pack(_forked(work)))


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
