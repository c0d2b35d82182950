"""The keeper: the first program behind a fence. It starts shells and ends processes, and is never busy itself.

It is a plain `bash` that reads what to do from its standard input. Its standard error is not for errors: there it tells
how things ended, a line `NAME CODE` for each, and every NAME is a fresh random word, so what a command writes there
by accident means nothing. Standard output belongs to the shell it keeps. Three plain pipes are all it needs, so it
works the same behind bubblewrap, in a container and without a fence. `tests/tools/test_terminal.py` proves it.
"""

import asyncio
import os
import signal
from collections import deque
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from stemma.tools.sandbox import Launch, ResourceLimits, Sandbox
from stemma.tools.tool import ToolError

# 9 tells ends, 8 is where shells write to. Only what is started with them open can use them.
_BEGIN = "exec 9>&2 8>&1 2>/dev/null; exec bash --noprofile --norc"
_PATIENCE = 1.0
"""How long it may take to end what it keeps before the whole fence is ended from outside."""


class FenceBroken(ToolError):
    """A sandbox that did not start, or ended before its time."""


class Keeper:
    """One fence, and the program in it that does as we say."""

    def __init__(self, process: asyncio.subprocess.Process, removal: list[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._input, self.output, self._told = process, process.stdin, process.stdout, process.stderr
        self._removal = removal
        self._expected: dict[str, asyncio.Future[str | None]] = {}
        self._complaints: deque[str] = deque(maxlen=5)
        self._listening = asyncio.ensure_future(self._listen())
        self.folder = ""
        """The conversation's folder, as seen from inside."""

    @classmethod
    async def start(cls, sandbox: Sandbox, root: Path, limits: ResourceLimits) -> "Keeper":
        """A fence around `root`, with the limits set for all that will run in it."""
        launch = sandbox.launch(["bash", "-c", _BEGIN], root, limits)
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            cwd=root,
            env=launch.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            **_as_owner(launch),
        )
        keeper = cls(process, launch.removal)
        try:
            # Writing to a shell that is gone must not end the keeper.
            keeper.folder = await keeper.ask("trap : PIPE", "$PWD") or ""
        finally:
            if not keeper.folder:
                await keeper.close()
        if not keeper.folder:
            raise FenceBroken(f"the sandbox {sandbox.name} did not start: {keeper.complaint()}")
        return keeper

    @property
    def alive(self) -> bool:
        """Whether it still does as it is told."""
        return self._process.returncode is None and not self._listening.done()

    def complaint(self) -> str:
        """What was last said on the pipe of ends that was no end: the words of a fence that failed."""
        return "\n".join(self._complaints) or "it ended without a word"

    def expect(self) -> "tuple[str, asyncio.Future[str | None]]":
        """A fresh name, and what will be told under it; None if the fence ends first."""
        name, end = token_hex(8), asyncio.get_running_loop().create_future()
        if self.alive:
            self._expected[name] = end
        else:
            end.set_result(None)
        return name, end

    def tell(self, line: str) -> None:
        """Have it do something; what a model wrote must be quoted."""
        with suppress(ConnectionError):
            self._input.write(line.encode("utf-8", "surrogatepass") + b"\n")

    async def ask(self, line: str, what: str = "$?") -> str | None:
        """Have it do something, and wait until it tells what came of it."""
        name, done = self.expect()
        self.tell(f"{line}; {says(name, what)}")
        return await done

    async def _listen(self) -> None:
        while told := await _line(self._told):
            name, _, what = told.decode("utf-8", "replace").strip().partition(" ")
            if name in self._expected:
                _settle(self._expected.pop(name), what)
            else:
                self._complaints.append(told.decode("utf-8", "replace").strip()[:500])
        for end in self._expected.values():
            _settle(end, None)
        self._expected.clear()

    async def close(self) -> None:
        """End the fence and all that is in it."""
        self.tell("exit")
        self._input.close()
        # asyncio tells the end of a process only when its pipes were read to their end, so somebody must read them.
        reading = asyncio.ensure_future(self._read_to_the_end())
        await self._gone()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._gone()
        await _run(self._removal)
        await asyncio.wait([reading], timeout=_PATIENCE)
        for task in (reading, self._listening):
            task.cancel()
        self._process._transport.close()  # type: ignore[attr-defined]  # who left the group may still hold the pipes
        await asyncio.sleep(0)  # a transport closes its pipe in the loop's next round, which may be the last

    async def _gone(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._process.wait()

    async def _read_to_the_end(self) -> None:
        with suppress(RuntimeError):  # a command that still runs reads it itself
            while await self.output.read(1 << 16):
                pass
        await self._listening


def says(name: str, what: str = "$?") -> str:
    """The words by which something behind the fence tells its end."""
    return f"printf '%s %s\\n' {name} \"{what}\" >&9"


async def _line(pipe: asyncio.StreamReader) -> bytes:
    try:
        return await pipe.readline()
    except ValueError:  # longer than any line of ours
        return b"(a line too long to show)\n"


def _settle(end: "asyncio.Future[str | None]", what: str | None) -> None:
    if not end.done():
        end.set_result(what)


def _as_owner(launch: Launch) -> dict[str, Any]:
    if launch.owner is None:
        return {}
    return {"user": launch.owner[0], "group": launch.owner[1], "extra_groups": []}


async def _run(removal: list[str]) -> None:
    if removal:
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*removal, stdin=quiet, stdout=quiet, stderr=quiet)
        await process.wait()
