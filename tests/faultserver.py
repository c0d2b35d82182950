"""A loopback endpoint that speaks chat completions, and misbehaves on schedule.

    async with FaultServer(["error_500", "reset_in_body"]) as server:
        model = OpenAIModel("m", server.base_url)

The first two requests meet those faults, every later one gets a good answer. `always=` meets every request; an item
may also be a function that answers as it likes. `FaultServer.seeded(seed, n)` mixes all 34 faults and good answers into
a schedule that is the same for the same seed. A good answer repeats what the user said, so that a reader who got only
a part of it can be told from one who got it all. All of it is bytes on a socket, no server library: a library would not
let us misbehave. It binds to 127.0.0.1 only.
"""

import asyncio
import functools
import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from completions import completion, events_of


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine, run in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))  # type: ignore[arg-type]

    return run


@dataclass
class Received:
    """One request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Gone(Exception):
    """The answer is over, and so is the connection."""


@dataclass
class Exchange:
    """One request and the ways to answer it."""

    request: Received
    writer: asyncio.StreamWriter
    server: "FaultServer"
    chance: random.Random

    @property
    def streamed(self) -> bool:
        return bool(isinstance(self.request.body, dict) and self.request.body.get("stream"))

    @property
    def said(self) -> str:
        """What the user said last, which a good answer repeats."""
        messages = (self.request.body or {}).get("messages") or [{}]
        return str(messages[-1].get("content"))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, **headers: Any) -> None:
        lines = [f"HTTP/1.1 {status} Status", *(f"{name.replace('_', '-')}: {v}" for name, v in headers.items())]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def whole(self, body: bytes, status: int = 200, **headers: Any) -> None:
        headers = {"Content_Type": "application/json", "Content_Length": len(body), **headers}
        await self.head(status, **headers)
        await self.send(body)

    async def json(self, payload: Any, status: int = 200, **headers: Any) -> None:
        await self.whole(json.dumps(payload).encode(), status, **headers)

    async def begin_stream(self, *, chunked: bool = True) -> None:
        framing = {"Transfer_Encoding": "chunked"} if chunked else {"Connection": "close"}
        await self.head(Content_Type="text/event-stream", **framing)

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def stream(self, pieces: Iterable[bytes]) -> None:
        """A whole event stream, each piece in a chunk of its own."""
        await self.begin_stream()
        for piece in pieces:
            await self.chunk(piece)
        await self.send(b"0\r\n\r\n")

    async def completion(self, payload: dict[str, Any]) -> None:
        """A completion in the way that was asked for."""
        if self.streamed:
            await self.stream(events_of(payload))
        else:
            await self.json(payload)

    def reset(self) -> None:
        """Break the connection as a crash does, not as a polite peer does."""
        sock = self.writer.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        raise Gone

    def hang_up(self) -> None:
        """Close the connection after what was sent."""
        raise Gone


Answer = Callable[[Exchange], Awaitable[None]]


@dataclass
class FaultServer:
    """The endpoint."""

    schedule: Iterable[str | Answer] = ()
    always: str | Answer | None = None
    models: list[str] = field(default_factory=lambda: ["m"])
    seed: int = 0
    pace: float = 0.15
    """Seconds between two bytes of an answer that comes too slowly."""
    away: float = 0.15
    """Seconds for which connections are refused."""

    connections: int = 0
    requests: list[Received] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    """The fault each request met, in order."""

    @classmethod
    def seeded(cls, seed: int, n: int, **options: Any) -> Self:
        """A schedule of `n` answers, each fault as likely as the others, and a good answer as likely as all of them."""
        from faults import FAULTS

        chance = random.Random(seed)
        names = list(FAULTS)
        mixed = [chance.choice([chance.choice(names), "good"]) for _ in range(n)]
        return cls(mixed, seed=seed, **options)

    async def __aenter__(self) -> Self:
        self.schedule = list(self.schedule)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = 0
        self._listen()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener.fileno() >= 0:
            self._stop_listening()
        await asyncio.sleep(0)  # for tasks that have not begun: they would never close their sockets
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # for the sockets of aborted connections to be closed

    def _listen(self) -> None:
        # Not asyncio.start_server: when that closes, it forgets connections it has accepted but does not serve yet.
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=4096)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        with suppress(OSError):  # nobody is waiting any more
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.in_background(self._welcome(connection))

    async def _welcome(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=2**26)
        except OSError:  # reset before we could say hello
            connection.close()
            return
        await self._serve(reader, writer)

    def _stop_listening(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()

    async def be_away(self) -> None:
        """Refuse connections for a while."""
        if self._listener.fileno() >= 0:  # not away already
            self._stop_listening()
            await asyncio.sleep(self.away)
            self._listen()

    def in_background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while (request := await _read(reader)) is not None:
                await self._answer(request, writer)
        except (Gone, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the peer left, or we did, or the test is over
        finally:
            writer.close()

    async def _answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        exchange = Exchange(request, writer, self, random.Random(f"{self.seed}:{len(self.requests)}"))
        if request.method == "GET":
            await exchange.json({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})
            return
        turn = len(self.requests)
        self.requests.append(request)
        assert isinstance(self.schedule, list)
        planned = self.schedule[turn] if turn < len(self.schedule) else "good"
        chosen = self.always or planned
        self.met.append(chosen if isinstance(chosen, str) else "custom")
        await self._named(chosen)(exchange)

    @staticmethod
    def _named(chosen: str | Answer) -> Answer:
        from faults import FAULTS

        if not isinstance(chosen, str):
            return chosen
        return good if chosen == "good" else FAULTS[chosen]


async def _read(reader: asyncio.StreamReader) -> Received | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, path, headers, json.loads(body) if body else None)


async def good(exchange: Exchange) -> None:
    """What an endpoint should do."""
    await exchange.completion(completion(f"you said: {exchange.said}", n=(exchange.request.body or {}).get("n") or 1))
