"""The keeper: the first program behind a fence. It starts shells and ends processes, and is never busy itself.

It is a plain `bash` that reads what to do from its standard input. Its standard error is not for errors: there it tells
how things ended, a line `NAME CODE` for each, and every NAME is a fresh random word, so what a command writes there
by accident means nothing. Standard output belongs to the shell it keeps. Three plain pipes are all it needs, so it
works the same behind bubblewrap, in a container and without a fence.

Every wait has a limit. A command can stop the keeper (`kill -STOP -1`) or starve it of processes; one that does not
answer in time is killed with everything in its fence, and `Workspace.shell` starts another.
`tests/tools/test_terminal.py` and `tests/tools/test_waiting.py` prove it.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from stemma.errors import HarnessFailed
from stemma.tools.cgroup import ControlGroup, make_group
from stemma.tools.protected import Mount
from stemma.tools.sandbox import Launch, ResourceLimits, Sandbox

# 9 tells ends, 8 is where shells write to. Only what is started with them open can use them.
_BEGIN = "exec 9>&2 8>&1 2>/dev/null; exec bash --noprofile --norc"
# Waits for a line, then becomes the program: by then it is in its control group.
_ONCE_IN_GROUP = ["bash", "-c", 'read -r _; exec "$@"', "bash"]
_PATIENCE = 1.0
"""How long it may take to end what it keeps before the whole fence is ended from outside."""
_BYTES_PER_SECOND = 100_000
"""How fast it surely reads: bash takes a pipe byte by byte, so a long line gets more time."""
_REMOVAL_SECONDS = 60.0
"""How long an engine may take to remove a container."""


class FenceBroken(HarnessFailed):
    """A sandbox that did not start, or that does not answer."""


class NoAnswer(FenceBroken):
    """A sandbox that runs but does not answer; it has been killed, and can be started again."""


class Keeper:
    """One fence, and the program in it that does as we say."""

    answer_seconds = 10.0
    """How long it may take to answer. It is never busy: a longer silence means that it was stopped or starved."""

    def __init__(
        self, process: asyncio.subprocess.Process, removal: list[str], group: ControlGroup | None = None
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._input, self.output, self._told = process, process.stdin, process.stdout, process.stderr
        self._removal, self._group, self._killed = removal, group, False
        self._expected: dict[str, asyncio.Future[str | None]] = {}
        self._complaints: deque[str] = deque(maxlen=5)
        self._listening = asyncio.ensure_future(self._listen())
        self.folder = ""
        """The conversation's folder, as seen from inside."""

    @classmethod
    async def start(
        cls, sandbox: Sandbox, root: Path, limits: ResourceLimits, mounts: Sequence[Mount] = ()
    ) -> "Keeper":
        """A fence around `root`, with the limits set for all that will run in it."""
        try:
            launch = sandbox.launch(["bash", "-c", _BEGIN], root, limits, mounts)
            group = make_group(limits) if launch.grouped else None
            process = await _started(launch, root, group)
        except OSError as problem:
            raise FenceBroken(f"the sandbox {sandbox.name} did not start: {problem}") from problem
        keeper = cls(process, launch.removal, group)
        try:
            keeper._join_group()
            # Writing to a shell that is gone must not end the keeper.
            keeper.folder = await keeper.ask("trap : PIPE", "$PWD", seconds=launch.start_seconds) or ""
        except NoAnswer:
            raise FenceBroken(
                f"the sandbox {sandbox.name} did not start within {launch.start_seconds:g} s: {keeper.complaint()}"
            ) from None
        finally:
            if not keeper.folder:
                await keeper.close()
        if not keeper.folder:
            raise FenceBroken(f"the sandbox {sandbox.name} did not start: {keeper.complaint()}")
        return keeper

    def _join_group(self) -> None:
        """Put it into its control group before it starts anything: it waits for a line until then."""
        if self._group is not None:
            with suppress(OSError):  # some kernels let us make a group, but not fill it: as if there were none
                self._group.add(self._process.pid)
            self.tell("")

    @property
    def alive(self) -> bool:
        """Whether it still does as it is told."""
        return not self._killed and self._process.returncode is None and not self._listening.done()

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
        if self._killed:
            return
        with suppress(ConnectionError):
            self._input.write(line.encode("utf-8", "surrogatepass") + b"\n")

    async def ask(self, line: str, what: str = "$?", *, seconds: float | None = None) -> str | None:
        """Have it do something, and wait until it tells what came of it; None if the fence ends first.

        A keeper that does not answer in time is killed, and `NoAnswer` rises.
        """
        name, done = self.expect()
        self.tell(f"{line}; {says(name, what)}")
        limit = self.answer_seconds if seconds is None else seconds
        await asyncio.wait([done], timeout=limit + len(line) / _BYTES_PER_SECOND)
        if done.done():
            return done.result()
        self._expected.pop(name, None)
        self.kill()
        raise NoAnswer(f"the sandbox did not answer within {limit:g} s and was ended")

    def kill(self) -> None:
        """End the fence from outside, at once. Its namespace ends with it, whatever was stopped in there."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._killed = True

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
        await self._gone(_PATIENCE)
        self.kill()
        await self._gone(self.answer_seconds)  # one that hangs in the kernel is left to it
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_PATIENCE):
                await self._input.wait_closed()
        await _run(self._removal)
        if self._group is not None:
            await self._group.remove()
        await asyncio.wait([reading], timeout=_PATIENCE)
        for task in (reading, self._listening):
            task.cancel()
        self._process._transport.close()  # type: ignore[attr-defined]  # who left the group may still hold the pipes
        await asyncio.sleep(0)  # a transport closes its pipe in the loop's next round, which may be the last

    async def _gone(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def _read_to_the_end(self) -> None:
        with suppress(RuntimeError):  # a command that still runs reads it itself
            while await self.output.read(1 << 16):
                pass
        await self._listening


async def _started(launch: Launch, root: Path, group: ControlGroup | None) -> asyncio.subprocess.Process:
    """The process of a fence; with a group it waits for a line first. The group is removed if none starts."""
    try:
        return await asyncio.create_subprocess_exec(
            *(_ONCE_IN_GROUP if group else []),
            *launch.argv,
            cwd=root,
            env=launch.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            **_as_owner(launch),
        )
    except BaseException:
        if group is not None:
            await group.remove()
        raise


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
        try:
            async with asyncio.timeout(_REMOVAL_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
