"""One exchange over HTTP: a request out, a whole body in, within its deadlines, or a typed error.

- Four deadlines: to connect, to the first byte of the body, between bytes, and in all; waiting for a free connection
  counts only in the last. One timer serves them all.
- Connections are kept open and reused; at most `connections` requests are under way, the others wait their turn.
- No redirect is followed, no cookie kept, no environment read. The body must come as it is: an encoded one is refused
  unread, so that it cannot unfold to more than came. A body larger than `largest` is refused as soon as it is.
- A connection that misbehaved is closed, never reused.

`tests/models/test_faults.py` proves it against an endpoint that misbehaves in 34 ways, `test_connections.py` the rest.
"""

import asyncio
import io
from collections.abc import Callable, Mapping
from typing import Protocol

import aiohttp
import msgspec
from aiohttp import hdrs
from yarl import URL

from stemma.models.errors import MOST_BODY, BrokenReply, ModelError, ReplyTooLarge, TooSlow, Unreachable
from stemma.models.failures import from_status

KEEP_ALIVE = 4.0
"""Seconds an idle connection is kept. uvicorn, and so vLLM and SGLang, closes after 5: a later request loses a race."""
_LARGE = 2**20
"""Above this aiohttp wants a file in place of bytes."""


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that an endpoint may take."""

    connect: float = 10.0
    first_byte: float = 600.0
    """From the request to the first byte of the body; without streaming that is the whole time of sampling."""
    between_bytes: float = 120.0
    total: float = 1800.0
    """For a reply in all, with every retry and every wait."""


class Body(Protocol):
    """What takes the bytes of an answer."""

    def feed(self, piece: bytes) -> bool:
        """Take a piece; True if nothing more is wanted."""
        ...

    def close(self) -> None:
        """All bytes have come; a `BrokenReply` if they do not make a whole."""
        ...


Receive = Callable[[str], Body]
"""Chooses who takes the body, by its content type."""


class Wire:
    """The connections to one endpoint."""

    def __init__(
        self,
        headers: Mapping[str, str],
        deadlines: Deadlines,
        *,
        connections: int,
        largest: int,
        clock: Callable[[], float],
    ) -> None:
        self._headers, self._deadlines = {**headers, hdrs.ACCEPT_ENCODING: "identity"}, deadlines
        self._connections, self._largest, self._clock = connections, largest, clock
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = asyncio.Semaphore(connections)

    async def ask(
        self, url: URL, body: bytes | None, receive: Receive, until: float, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, str]:
        """Send `body` (None: only get), give the answer to whom `receive` names, return the headers that came."""
        session, watch = await self._here(), _Watch(until, waits=self._gate.locked())
        problem: ModelError
        try:
            async with watch.scope, self._gate:
                watch.expect("the first byte", self._deadlines.connect + self._deadlines.first_byte)
                return await self._exchange(session, url, body, receive, watch, headers or {})
        except aiohttp.ServerTimeoutError:
            problem = TooSlow(f"no connection to {url.origin()} within {self._deadlines.connect:g} s")
        except (aiohttp.ClientError, OSError) as trouble:  # TimeoutError is an OSError
            problem = watch.verdict() if watch.scope.expired() else _broken(trouble, url)
        except RecursionError:
            problem = BrokenReply("the reply is nested too deep to read", status=200)
        # Outside of the handler: an error of aiohttp holds the request's headers, and must not hang on ours.
        raise problem

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        body: bytes | None,
        receive: Receive,
        watch: "_Watch",
        headers: Mapping[str, str],
    ) -> Mapping[str, str]:
        data = io.BytesIO(body) if body is not None and len(body) > _LARGE else body
        method = hdrs.METH_GET if body is None else hdrs.METH_POST
        async with session.request(method, url, data=data, headers=headers, allow_redirects=False) as response:
            try:
                if not 200 <= response.status < 300:
                    raise await self._refusal(response)
                await self._receive(response, receive(response.content_type), watch)
            except (ModelError, RecursionError):
                response.close()  # what is left of the answer must not meet the next request
                raise
            return response.headers

    async def _receive(self, response: aiohttp.ClientResponse, body: Body, watch: "_Watch") -> None:
        if (coding := response.headers.get(hdrs.CONTENT_ENCODING, "identity").lower()) != "identity":
            raise BrokenReply(f"the reply came encoded ({coding}) although it was asked for as it is", status=200)
        size = 0
        async for piece in response.content.iter_any():
            if not response.content.at_eof():
                watch.expect("the next byte", self._deadlines.between_bytes)
            size += len(piece)
            if size > self._largest:
                raise ReplyTooLarge(f"the reply goes on past {self._largest:,} bytes", status=200)
            if body.feed(piece):
                await _settle(response)
                break
        body.close()

    async def _refusal(self, response: aiohttp.ClientResponse) -> ModelError:
        """The error that the status says; its body is a courtesy, and one that does not come changes nothing."""
        pieces, size = [], 0
        try:
            async with asyncio.timeout(min(self._deadlines.between_bytes, 5.0)):
                async for piece in response.content.iter_any():
                    pieces.append(piece)
                    size += len(piece)
                    if size >= MOST_BODY:
                        break
        except (TimeoutError, aiohttp.ClientError):
            pieces.append(b" (the rest did not come)")
        text = b"".join(pieces)[:MOST_BODY]
        return from_status(response.status, response.headers, text, self._clock())

    async def _here(self) -> aiohttp.ClientSession:
        """The session of this event loop; one model may serve several loops, one after another."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            await self.close()
            self._session, self._loop = self._open(), loop
            self._gate = asyncio.Semaphore(self._connections)
        return self._session

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            # The gate limits, not the connector: waiting for our own turn is not the endpoint's slowness.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE, ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._deadlines.connect),
            headers=self._headers,
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close every connection; a later `ask` opens new ones."""
        session, self._session = self._session, None
        if session is None or self._loop is None:
            return
        if self._loop is asyncio.get_running_loop() or self._loop.is_closed():
            await session.close()
        else:
            session.detach()  # its loop is neither ours nor over: only there could it be closed


class _Watch:
    """One timer for all deadlines, moved forward as an answer comes."""

    def __init__(self, until: float, *, waits: bool) -> None:
        # Who does not wait for a free connection is timed from the first thing that is expected.
        self.scope = asyncio.timeout_at(until if waits else None)
        self._until = until
        self._for, self._seconds = "a free connection", 0.0

    def expect(self, what: str, seconds: float) -> None:
        """Something has come; now wait for `what`, but never past the end of all."""
        self._for, self._seconds = what, seconds
        self.scope.reschedule(min(self._until, asyncio.get_running_loop().time() + seconds))

    def verdict(self) -> TooSlow:
        """Which deadline it was that passed."""
        if asyncio.get_running_loop().time() >= self._until:
            return TooSlow(f"the time for the whole reply was over while waiting for {self._for}")
        return TooSlow(f"{self._for} did not come within {self._seconds:g} s")


def _broken(trouble: Exception, url: URL) -> Unreachable:
    """What happened to the connection; aiohttp's own words may repeat the bytes that came, so most are not used."""
    match trouble:
        case aiohttp.ClientPayloadError():
            what = "broke the connection inside the reply"
        case aiohttp.ServerDisconnectedError():
            what = "closed the connection without an answer"
        case aiohttp.ClientResponseError():
            what = "answered with something that is not HTTP"
        case _:
            what = f"cannot be reached: {trouble or type(trouble).__name__}"
    return Unreachable(f"{url.origin()} {what}")


async def _settle(response: aiohttp.ClientResponse) -> None:
    """After the end mark: if the body ends as well, the connection can be reused; the reply is whole in any case."""
    try:
        async with asyncio.timeout(0.1):
            await response.content.readany()
    except (TimeoutError, aiohttp.ClientError):
        response.close()
