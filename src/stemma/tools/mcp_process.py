"""A server of tools as a program of ours: started with next to nothing, listened to within bounds, and ended for sure.

It speaks one JSON message a line. It gets no environment but PATH and what was configured, and a session of its own, so
that it ends with all it has started. Most servers end when their input does; one that does not is killed, by us when we
leave, and by a watchdog process when we are killed ourselves. One that says more than `MOST` bytes without answering
anything floods, and is cut off: to the other side that looks like any end of a connection. `tests/tools/test_mcp.py`
proves it.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from stemma.redact import Redactor
from stemma.tools.kept import Kept

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MOST = 32 << 20
"""How many bytes may come without an answer among them."""
_PATIENCE = 1.0
"""How long it may take to leave on its own."""
_WATCHDOG = 'cat >/dev/null; kill -s KILL -- "-$1"'
"""Ends a process group when its own input ends: then whoever held the other end of that pipe is gone."""


class ServerProcess:
    """One running server."""

    def __init__(
        self, process: asyncio.subprocess.Process, watchdog: asyncio.subprocess.Process, redactor: Redactor
    ) -> None:
        self._process, self._watchdog = process, watchdog
        self._complaints = Kept(2000, redactor)
        self.gone = asyncio.Event()
        """Set when it says no more: it has ended, or was cut off."""

    @classmethod
    async def start(cls, argv: Sequence[str], env: Mapping[str, str], redactor: Redactor) -> "ServerProcess":
        """Start it; `OSError` if there is no such program. `redactor` cleans what it complains of."""
        pipe = asyncio.subprocess.PIPE
        environment = {"PATH": os.pathsep.join(os.get_exec_path()), **env}
        process = await asyncio.create_subprocess_exec(
            *argv, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, limit=MOST
        )
        try:
            return cls(process, await _watchdog(process.pid), redactor)
        except BaseException:  # a cancellation as well
            os.killpg(process.pid, signal.SIGKILL)
            process._transport.close()  # type: ignore[attr-defined]
            raise

    def complaint(self) -> str:
        """What it wrote to its standard error."""
        return self._complaints.text()[0].strip()

    @asynccontextmanager
    async def streams(self) -> "AsyncIterator[TransportStreams]":
        """What it says and what it is told, message by message; leaving ends it."""
        from anyio import create_memory_object_stream

        said_to, said = create_memory_object_stream[Any](0)
        told, told_from = create_memory_object_stream[Any](0)
        work = [self._listen(said_to), self._speak(told_from, said_to), self._hear_complaints()]
        running = [asyncio.ensure_future(one) for one in work]
        try:
            yield said, told
        finally:
            try:
                await self._end()
                await asyncio.wait(running, timeout=_PATIENCE)  # its last words may still be on their way
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
            finally:  # also for who is cancelled while waiting
                for stream in (said_to, said, told, told_from):
                    stream.close()

    async def _listen(self, said_to: Any) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

        assert self._process.stdout is not None
        unanswered = 0
        async with said_to:
            while unanswered <= MOST and (line := await _line(self._process.stdout)):
                unanswered += len(line)
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:  # a print that was meant for somebody's eyes
                    continue
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    unanswered = 0
                await said_to.send(SessionMessage(message))
        self._kill()  # nobody listens any more
        self.gone.set()

    async def _speak(self, told_from: Any, said_to: Any) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            async for told in told_from:
                line = told.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(line.encode() + b"\n")
                await self._process.stdin.drain()
        said_to.close()  # who can no longer be told anything will not answer either

    async def _hear_complaints(self) -> None:
        assert self._process.stderr is not None
        while block := await self._process.stderr.read(1 << 16):
            self._complaints.add(block)
        self._complaints.end()

    async def _end(self) -> None:
        """Ask it to leave by closing its input, then end it with all that it has started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._gone()
        self._kill()
        await self._gone()
        with suppress(ProcessLookupError):
            self._watchdog.kill()
        await self._watchdog.wait()
        for process in (self._process, self._watchdog):
            process._transport.close()  # type: ignore[attr-defined]  # who left the group may still hold the pipes

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _gone(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._process.wait()


async def _watchdog(group: int) -> asyncio.subprocess.Process:
    quiet = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        "sh",
        *("-c", _WATCHDOG, "sh", str(group)),
        env={"PATH": os.pathsep.join(os.get_exec_path())},
        stdin=asyncio.subprocess.PIPE,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )


async def _line(pipe: asyncio.StreamReader) -> bytes:
    try:
        return await pipe.readline()
    except ValueError:  # longer than may be
        return b""
