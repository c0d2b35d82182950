"""What the processes of a run say to each other, over a socket between a parent and a process that it forked.

    the chief says     Begin, Room, Stop, Cancel          and no more when it ends, however it does
    a helper says      Ended, Elsewhere, Failed, Done     no more without Done: it was lost

A message is its length and its pickle, which holds all that a record may hold, lone surrogates and errors included;
both ends are the same program. `tests/batch/test_line.py` proves it.
"""

import asyncio
import pickle
import socket
import struct
from contextlib import suppress
from typing import Self

import msgspec

from stemma.batch.gate import Pace
from stemma.batch.order import Ended
from stemma.batch.progress import Elsewhere

_LENGTH = struct.Struct("!I")


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Help with a run."""

    name: str
    pace: Pace
    since: float
    """When the run was begun or taken up."""


class Room(msgspec.Struct, frozen=True):
    """So many may run at once in your process."""

    ceiling: int


class Stop(msgspec.Struct, frozen=True):
    """Start no more tasks."""

    why: str


class Cancel(msgspec.Struct, frozen=True):
    """Leave the tasks where they are."""


class Failed(msgspec.Struct, frozen=True):
    """The run cannot go on."""

    problem: Exception


class Done(msgspec.Struct, frozen=True):
    """Nothing is left that could be begun, and nothing runs."""


Message = Begin | Room | Stop | Cancel | Ended | Elsewhere | Failed | Done


class Line:
    """One end of a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """The line whose end a socket is."""
        try:
            return cls(*await asyncio.open_unix_connection(sock=end))
        except BaseException:
            end.close()
            raise

    def say(self, message: Message) -> None:
        """Send a message; one to an end that is gone is lost."""
        if not self._writer.is_closing():
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._writer.write(_LENGTH.pack(len(data)) + data)

    async def hear(self) -> Message | None:
        """The next message; None when the other end is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            message: Message = pickle.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return message

    async def drain(self) -> None:
        """Wait while the other end has too much to read."""
        with suppress(ConnectionError):
            await self._writer.drain()

    async def close(self) -> None:
        """End the line, once all that was said has been sent."""
        with suppress(ConnectionError):
            self._writer.close()
            await self._writer.wait_closed()
