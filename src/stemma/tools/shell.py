"""A shell that keeps its state, and processes that run beside it, behind one fence.

Folder, variables and functions last from one command to the next. A command that runs too long is ended with all of
its process group, and the shell starts anew; processes in the background have groups of their own and go on. They
are started by the shell itself, so they begin with its folder, variables and functions. Output cannot forge the end of
a command (`tools/keeper.py`). `tests/tools/test_terminal.py`, `tests/tools/test_processes.py` and
`tests/tools/test_waiting.py` prove it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from shlex import quote

import msgspec

from stemma.redact import NOTHING_SECRET, Redactor
from stemma.tools.keeper import Keeper, NoAnswer, says
from stemma.tools.kept import Kept
from stemma.tools.outlet import Outlet
from stemma.tools.protected import Mount
from stemma.tools.sandbox import ResourceLimits, Sandbox
from stemma.tools.tool import ToolError

_GRACE = 0.5
"""How long to wait for the last of an output after a command or process has ended: it may be on its way."""
_TO_STOP = 2.0
"""How long a process that was asked to end may take to do so."""


class Ran(msgspec.Struct, frozen=True):
    """How a command ended."""

    output: str
    code: int | None
    """Its exit code; None if it was ended for taking too long, or took the shell with it."""
    cut: int = 0
    """How many characters of its output were left out."""
    too_long: bool = False
    """Whether it was ended for taking too long."""
    started: bool = True
    """Whether it ran at all; False if the sandbox did not answer and was ended before it took the command."""


class Shell:
    """One running shell behind a fence, and its processes in the background."""

    def __init__(self, keeper: Keeper, root: Path, limits: ResourceLimits, redactor: Redactor = NOTHING_SECRET) -> None:
        self._keeper, self._root, self._limits, self._redactor = keeper, root, limits, redactor
        self._gone: asyncio.Future[str | None] | None = None
        """Told when the shell that runs now has ended; None while none runs."""
        self._turn = asyncio.Lock()
        self._processes: list[Process] = []

    @classmethod
    async def start(
        cls,
        sandbox: Sandbox,
        root: Path,
        limits: ResourceLimits,
        mounts: Sequence[Mount] = (),
        redactor: Redactor = NOTHING_SECRET,
    ) -> "Shell":
        """A fresh fence around `root`; the shell in it starts with its first command."""
        return cls(await Keeper.start(sandbox, root, limits, mounts), root, limits, redactor)

    @property
    def alive(self) -> bool:
        """Whether it still takes commands."""
        return self._keeper.alive

    async def run(self, command: str, seconds: float | None = None) -> Ran:
        """Run a command and wait for its end; one at a time."""
        async with self._turn:
            kept, mark = Kept(self._limits.output_chars, self._redactor), token_hex(8)
            reading = asyncio.ensure_future(self._read_into(kept, mark.encode()))
            too_long, code, started = False, None, True
            # eval: a syntax error ends the command, not the shell; no input, so that nothing waits for it.
            work = f"eval {quote(command)} 8>&- 9>&- </dev/null"
            try:
                done = await self._begin(lambda name: f"{work}; {says(name)}; printf {mark} >&8")
                code = await self._result(done, min(seconds or self._limits.seconds, self._limits.seconds))
            except TimeoutError:
                too_long = True
            except NoAnswer:
                started = False
            finally:
                if code is None:
                    self._end_shell(f"printf {mark} >&8")
                await asyncio.wait([reading], timeout=_GRACE)
                reading.cancel()
                await asyncio.wait([reading])
            if too_long:
                with suppress(NoAnswer):  # then it is killed, and the command with it
                    await self._keeper.ask(":")
            kept.end()
            output, cut = kept.text()
            return Ran(output, code, cut, too_long, started)

    async def launch(self, command: str) -> "Process":
        """Start a command in the background."""
        async with self._turn:
            outlet = Outlet(self._root, self._limits.output_chars, self._redactor)
            name, ended = self._keeper.expect()
            # Asked to end, the group's first process stays to tell how the command took it.
            work = f"{{ trap : TERM; ( eval {quote(command)} ) 9>&-; {says(name)}; }} </dev/null >&8 2>&1 8>&- &"
            pipe = quote(f"{self._keeper.folder}/{outlet.name}")
            await outlet.open()
            try:
                begun = await self._begin(
                    lambda ack: f"set -m; {{ {work} {says(ack, '$!')}; }} 8>{pipe} || {says(ack, '0')}; set +m"
                )
                group = await self._result(begun, self._keeper.answer_seconds)
            except (TimeoutError, NoAnswer):
                group = None
                self._end_shell()
            finally:
                outlet.hide()
            process = Process(self._keeper, group or 0, ended, outlet)
            self._processes.append(process)
            if not group:
                raise ToolError("the process could not be started; the shell starts anew, try again")
            return process

    async def _begin(self, line: Callable[[str], str]) -> "asyncio.Future[str | None]":
        """Have the shell take a line, in which it tells something under the name it is given; what it will tell."""
        if self._gone is None or self._gone.done():
            self._start_shell()
        name, done = self._keeper.expect()
        await self._keeper.ask(f"printf '%s\\n' {quote(line(name))} >&\"${{SHELL_PIPES[1]}}\"")
        return done

    async def _result(self, done: "asyncio.Future[str | None]", seconds: float) -> int | None:
        """What the shell tells within that time, else `TimeoutError`; None if the shell ends first."""
        assert self._gone is not None
        finished, _ = await asyncio.wait((done, self._gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not finished:
            raise TimeoutError
        told = done.result() if done.done() else None
        return int(told) if told else None

    def _start_shell(self) -> None:
        name, self._gone = self._keeper.expect()
        shell = f"coproc SHELL_PIPES {{ bash --noprofile --norc; {says(name)}; }} >&8 2>&1"
        self._keeper.tell(f"set -m; {shell}; SHELL_GROUP=$!; set +m")

    def _end_shell(self, then: str = ":") -> None:
        """End the shell and its group; waiting for it lets the keeper forget it before it starts another."""
        self._keeper.tell(f'kill -KILL -- "-$SHELL_GROUP"; wait "$SHELL_GROUP"; {then}')
        self._gone = None

    async def _read_into(self, kept: Kept, mark: bytes) -> None:
        """Take in output up to the mark, which comes behind all that a command wrote while it ran."""
        held = b""
        try:
            while block := await self._keeper.output.read(1 << 16):
                before, found, _ = (held + block).partition(mark)
                held = b"" if found else before[1 - len(mark) :]  # the mark may be on its way in two pieces
                kept.add(before[: len(before) - len(held)])
                if found:
                    return
        finally:
            kept.add(held)

    async def close(self) -> None:
        """End it and all it has started."""
        for process in self._processes:
            process.send("KILL")
        self._end_shell()
        await self._keeper.close()
        for process in self._processes:
            await process.close()


class Process:
    """A command in the background, with all that it starts."""

    def __init__(self, keeper: Keeper, group: int, ended: "asyncio.Future[str | None]", outlet: Outlet) -> None:
        self._keeper, self._group, self._ended, self._outlet = keeper, group, ended, outlet
        self.stopped = False
        """Whether it was ended by us."""

    @property
    def running(self) -> bool:
        """Whether its command has not ended yet."""
        return not self.stopped and not self._ended.done()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs, and if it was ended by us or with the fence."""
        told = self._ended.result() if self._ended.done() else None
        return int(told) if told else None

    def news(self) -> tuple[str, int]:
        """Its output since somebody last looked, and how many characters of it are left out."""
        return self._outlet.news()

    async def wait(self, seconds: float) -> bool:
        """Wait for its end, but not longer than that; whether it has ended."""
        await asyncio.wait([self._ended], timeout=seconds)
        if not self.running:
            await self._outlet.drain(_GRACE)
        return not self.running

    async def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        self.send("TERM")
        await self.wait(_TO_STOP)
        self.stopped = self.running
        if self.stopped:
            with suppress(NoAnswer):  # then it is killed with its fence
                await self._keeper.ask(f"kill -KILL -- -{self._group}")
            await self._outlet.drain(_GRACE)

    def send(self, signal: str) -> None:
        """Send a signal to it and all it has started, unless it has ended: its number may be another's by then."""
        if self._group and self.running:
            self._keeper.tell(f"kill -{signal} -- -{self._group}")

    async def close(self) -> None:
        """Forget it, its fence being gone."""
        await self._outlet.close()
