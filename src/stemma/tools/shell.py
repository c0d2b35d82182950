"""A shell that keeps its state: folder, variables and functions last from one command to the next.

Commands come in on one pipe, output leaves on a second, and the end of each command is told on a third that no command
can write to, so output cannot forge an end. A command that runs too long is ended with all that it started; the
shell then starts anew, and says so. Output is kept as head and tail, and what was cut is counted.
`tests/tools/test_terminal.py` proves it.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from stemma.tools.sandbox import ResourceLimits, Sandbox

_GRACE = 0.05
"""How long output is still read after a command has ended: what it wrote last may be on its way."""


class Ran(msgspec.Struct, frozen=True):
    """How a command ended."""

    output: str
    code: int | None
    """Its exit code; None if it was ended for taking too long, or took the shell with it."""
    cut: int = 0
    """How many characters of its output were left out."""


class Kept:
    """The head and the tail of a stream, however long it is."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, block: bytes) -> None:
        """Take in what has come."""
        self._total += len(block)
        room = self._half * 4 - len(self._head)  # bytes; a character has at most four
        self._head += block[:room] if room > 0 else b""
        self._tail += block[max(room, 0) :]
        if len(self._tail) > self._half * 8:
            del self._tail[: -self._half * 4]

    def text(self) -> tuple[str, int]:
        """What is shown of it, and how many characters are not."""
        if self._total == len(self._head) + len(self._tail):
            whole = (self._head + self._tail).decode("utf-8", "replace")
            if len(whole) <= self._half * 2:
                return whole, 0
        head = self._head.decode("utf-8", "replace")[: self._half]
        tail = (self._tail or self._head).decode("utf-8", "replace")[-self._half :]
        cut = max(self._total - len(head.encode()) - len(tail.encode()), 1)
        return f"{head}\n… [{cut} characters left out] …\n{tail}", cut


class Shell:
    """One running shell behind a fence."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        ends: tuple[asyncio.StreamReader, asyncio.ReadTransport],
        limits: ResourceLimits,
    ) -> None:
        self._process, self._limits = process, limits
        self._ends, self._ends_pipe = ends
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, sandbox: Sandbox, root: Path, limits: ResourceLimits) -> "Shell":
        """A fresh shell in `root`."""
        readable, writable = os.pipe()
        try:
            # The third pipe is number 9 in the shell; every command is started with it closed.
            script = f"exec 9>&{writable}; exec {writable}>&-; {limits.shell()}; exec bash --noprofile --norc"
            process = await asyncio.create_subprocess_exec(
                *sandbox.wrap(["bash", "-c", script], root),
                cwd=root,
                env=dict(sandbox.environment()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(writable,),
                start_new_session=True,
                **_as_owner(root),
            )
        except BaseException:
            os.close(readable)
            raise
        finally:
            os.close(writable)
        return cls(process, await _reader(readable), limits)

    @property
    def alive(self) -> bool:
        """Whether it still takes commands."""
        return self._process.returncode is None

    async def run(self, command: str, seconds: float | None = None) -> Ran:
        """Run a command and wait for its end; one at a time."""
        async with self._turn:
            kept = Kept(self._limits.output_chars)
            reading = asyncio.ensure_future(self._read_into(kept))
            try:
                async with asyncio.timeout(min(seconds or self._limits.seconds, self._limits.seconds)):
                    code = await self._run(command)
                    if code is None:
                        await self._process.wait()
            except TimeoutError:
                await self.close()
                code = None
            if code is not None:
                await asyncio.sleep(_GRACE if not reading.done() else 0)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            output, cut = kept.text()
            return Ran(output, code, cut)

    async def _run(self, command: str) -> int | None:
        assert self._process.stdin is not None
        quoted = "'" + command.replace("'", "'\\''") + "'"
        # eval, so that a syntax error ends the command and not the shell; stdin closed, so that nothing waits for it.
        line = f"eval {quoted} 9>&- </dev/null; echo $? >&9\n"
        self._process.stdin.write(line.encode("utf-8", "surrogateescape"))
        with suppress(ConnectionError):
            await self._process.stdin.drain()
        told = await self._ends.readline()
        return int(told) if told.strip() else None

    async def _read_into(self, kept: Kept) -> None:
        assert self._process.stdout is not None
        while block := await self._process.stdout.read(1 << 16):
            kept.add(block)

    async def close(self) -> None:
        """End it and all it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):  # read to its end, a pipe closes itself
                while await self._process.stdout.read(1 << 16):
                    pass
        self._ends_pipe.close()
        await asyncio.sleep(0)  # a transport closes its pipe in the loop's next round, which may be the last


def _as_owner(root: Path) -> dict[str, Any]:
    """Run as whom the folder belongs to: the kernel bounds no processes of root."""
    owner = root.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return {}
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(descriptor, "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport
