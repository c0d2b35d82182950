"""Reading one page of the web, within bounds.

Only http and https; no more than a few redirects, each looked at like the first address; no more time and bytes than
allowed, also when the page is packed. Unless private addresses are allowed, nothing of this machine or its own network
is reached: a name is resolved by us, refused if any of its addresses is not public, and the connection goes to just
those addresses, so a name that answers differently the second time gains nothing.

Covered: odd spellings of addresses, IPv6, redirects, names that lead inside, DNS rebinding, packed bombs, endless and
slow pages. Not covered: what a public page says; its text is data for a model and no more.
`tests/tools/test_web_fetch.py` proves it.
"""

import asyncio
import socket
import zlib
from ipaddress import IPv4Address, IPv6Address, ip_address

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from stemma.tools.tool import ToolError
from stemma.tools.web_access import WebAccess

_MOST_REDIRECTS = 5
_STEP = 1 << 16
_TEXTUAL = ("json", "xml", "javascript", "yaml", "x-sh", "toml", "markdown")
_HEADERS = {"User-Agent": "stemma", "Accept": "text/html, text/*;q=0.9, */*;q=0.5", "Accept-Encoding": "gzip"}


class Refused(ToolError):
    """An address that is not to be reached."""


class Unreadable(ToolError):
    """A page that did not come, or is no text."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A page as it came."""

    url: str
    """Where it was at last, after redirects."""
    type: str
    charset: str
    body: bytes
    cut: int = 0
    """How many bytes are known to be missing at its end."""

    @property
    def is_html(self) -> bool:
        """Whether it has markup."""
        return "html" in self.type


async def fetch(url: str, access: WebAccess, resolver: AbstractResolver | None = None) -> Fetched:
    """The page at `url`."""
    try:
        async with asyncio.timeout(access.seconds), _session(access, resolver) as session:
            return await _follow(url, access, session)
    except TimeoutError:
        raise Unreadable(f"{url} did not come within {access.seconds:g} s") from None
    except (aiohttp.ClientError, zlib.error, OSError) as problem:
        raise Unreadable(f"{url} cannot be read: {problem or type(problem).__name__}") from problem


def _session(access: WebAccess, resolver: AbstractResolver | None) -> aiohttp.ClientSession:
    inner = resolver or aiohttp.ThreadedResolver()
    connector = aiohttp.TCPConnector(
        resolver=inner if access.allow_private else PublicResolver(inner), use_dns_cache=False, force_close=True
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        headers=_HEADERS,
        auto_decompress=False,
        trust_env=False,
    )


async def _follow(url: str, access: WebAccess, session: aiohttp.ClientSession) -> Fetched:
    target = check(url, allow_private=access.allow_private)
    for _ in range(_MOST_REDIRECTS + 1):
        async with session.get(target, allow_redirects=False) as response:
            leads_to = response.headers.get("Location")
            if response.status not in (301, 302, 303, 307, 308) or not leads_to:
                return await _read(response, access.page_bytes)
        target = check(leads_to, allow_private=access.allow_private, base=target)
    raise Unreadable(f"{url} leads on to other addresses more than {_MOST_REDIRECTS} times")


def check(url: str, *, allow_private: bool, base: URL | None = None) -> URL:
    """The address that `url` is, if it may be asked for at all."""
    try:
        target = base.join(URL(url)) if base else URL(url.strip())
    except ValueError as problem:
        raise Refused(f"{url!r:.200} is no URL: {problem}") from None
    host = target.raw_host
    if target.scheme not in ("http", "https") or not host:
        raise Refused(f"{url!r:.200} is no http or https address")
    if target.user is not None or target.password is not None:
        raise Refused(f"the address of {host} holds credentials; leave them out")
    if not allow_private:
        _check_literal(host)
    return target


def _check_literal(host: str) -> None:
    """An address written as such is never resolved, so it must be plain and public."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        if host.replace(".", "").isdigit():
            raise Refused(f"{host} is an odd spelling of an address; write its name") from None
        return
    if not is_public(address):
        raise Refused(f"{host} is a private address")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether it belongs to the public network; IPv6 addresses that stand for IPv4 ones are taken for private."""
    if isinstance(address, IPv6Address) and (address.is_site_local or address.sixtofour is not None):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


class PublicResolver(AbstractResolver):
    """Finds the addresses of names, and refuses names that lead inside."""

    def __init__(self, inner: AbstractResolver) -> None:
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if not all(is_public(ip_address(one["host"].partition("%")[0])) for one in found):
            raise Refused(f"{host} leads to a private address")
        return found

    async def close(self) -> None:
        await self._inner.close()


async def _read(response: aiohttp.ClientResponse, most: int) -> Fetched:
    if response.status >= 400:
        raise Unreadable(f"{response.url} answered {response.status} {response.reason or ''}".rstrip())
    kind = response.content_type if "Content-Type" in response.headers else "text/html"
    if not (kind.startswith("text/") or any(word in kind for word in _TEXTUAL)):
        raise Unreadable(f"{response.url} is {kind}, not text")
    body = await _body(response, most)
    if b"\0" in body[:1024] and not body.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(f"{response.url} says it is {kind}, but it is no text")
    missing = max((response.content_length or 0) - most, 1) if len(body) > most else 0
    return Fetched(
        url=str(response.url), type=kind, charset=response.charset or "", body=bytes(body[:most]), cut=missing
    )


async def _body(response: aiohttp.ClientResponse, most: int) -> bytearray:
    """The body up to one byte more than `most`; unpacked no further than that."""
    packing = response.headers.get("Content-Encoding", "identity").lower()
    if packing not in ("identity", "gzip", "x-gzip"):
        raise Unreadable(f"{response.url} is packed as {packing}, which was not asked for")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if packing != "identity" else None
    body = bytearray()
    async for block in response.content.iter_chunked(_STEP):
        if unpacker is None:
            body += block
        else:
            await _unpack(unpacker, block, body, most)
        if len(body) > most:
            break
    return body[: most + 1]


async def _unpack(unpacker: "zlib._Decompress", block: bytes, body: bytearray, most: int) -> None:
    """Add what `block` holds to `body`, in steps: a few bytes may hold megabytes, and others want to go on."""
    step = b"?" * _STEP
    while len(step) == _STEP and len(body) <= most:
        step = unpacker.decompress(block, _STEP)
        body += step
        block = unpacker.unconsumed_tail
        await asyncio.sleep(0)
