"""A pipe out of the fence: what a process in the background writes, as it comes.

The pipe has a name in the conversation's folder only until the process has opened it. What is read is kept as head and
tail since somebody last looked, so a process that writes without end costs no memory and is never held up.
`tests/tools/test_processes.py` proves it.
"""

import asyncio
import os
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from stemma.redact import NOTHING_SECRET, Redactor
from stemma.tools.kept import Kept
from stemma.tools.tool import ToolError


class Outlet:
    """One end of a named pipe, and what has come out of it."""

    def __init__(self, root: Path, most: int, redactor: Redactor = NOTHING_SECRET) -> None:
        self.name = f".{token_hex(8)}.pipe"
        self._root = root
        self._kept = Kept(most, redactor)
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Make the pipe and start to read."""
        pipe = os.fdopen(_named_pipe(self._root, self.name), "rb", 0)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._reading = asyncio.create_task(self._read(reader, transport))

    async def _read(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        try:
            while block := await reader.read(1 << 16):
                self._kept.add(block)
            self._kept.end()
        finally:
            transport.close()

    def hide(self) -> None:
        """Take the name away: who needed the pipe has it open."""
        with suppress(FileNotFoundError):
            os.unlink(self._root / self.name)

    def news(self) -> tuple[str, int]:
        """What has come since somebody last looked, and how many characters of it are left out."""
        news = self._kept.text()
        self._kept.clear()
        return news

    async def drain(self, seconds: float) -> None:
        """Wait until nobody writes any more, but not longer than that."""
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=seconds)

    async def close(self) -> None:
        """Stop reading; the name is gone as well."""
        self.hide()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            await asyncio.sleep(0)  # a transport closes its pipe in the loop's next round, which may be the last


def _named_pipe(root: Path, name: str) -> int:
    """A fresh pipe in `root`, open for reading, that belongs to whom the folder belongs to."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.mkfifo(name, 0o600, dir_fd=folder)
        pipe = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):  # a command may have put something else there
            os.close(pipe)
            raise ToolError("the output of the process could not be caught; try again")
        if os.geteuid() == 0:
            owner = os.fstat(folder)
            os.fchown(pipe, owner.st_uid, owner.st_gid)
    finally:
        os.close(folder)
    return pipe
