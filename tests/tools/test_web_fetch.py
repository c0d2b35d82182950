"""A page is read within bounds, and nothing inside is reached: by no spelling, redirect, name or second answer."""

import asyncio
import gzip
import socket
import time

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from faultserver import in_loop
from pages import site
from stemma.tools.web_access import WebAccess
from stemma.tools.web_fetch import PublicResolver, Refused, Unreadable, _follow, check, fetch

INSIDE = WebAccess(allow_private=True, seconds=5, page_bytes=10_000)
OUTSIDE = WebAccess(seconds=5)


class Names(AbstractResolver):
    """A name server that gives each name's answers one after another, the last one for ever."""

    def __init__(self, **answers):
        self.answers = {name.replace("_", "."): list(addresses) for name, addresses in answers.items()}

    async def resolve(self, host, port=0, family=socket.AF_UNSPEC):
        addresses = self.answers[host]
        address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        return [_resolved(host, one, port) for one in address.split()]

    async def close(self):
        pass


def _resolved(host, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": family,
        "proto": 0,
        "flags": socket.AI_NUMERICHOST,
    }


@in_loop
async def test_a_page_is_read_through_redirects_and_its_last_address_is_told():
    async def first(request):
        raise web.HTTPFound("/second?x=1")

    second = {"body": "é".encode("latin-1"), "content_type": "text/html", "charset": "latin-1"}
    async with site(first=first, second=second) as here:
        page = await fetch(f"{here.url}/first", INSIDE)
        assert (page.url, page.body, page.charset) == (f"{here.url}/second?x=1", b"\xe9", "latin-1")


@in_loop
async def test_a_page_that_leads_on_for_ever_is_left():
    async def loop(request):
        raise web.HTTPFound("/loop")

    async with site(loop=loop) as here:
        with pytest.raises(Unreadable, match="more than 5 times"):
            await fetch(f"{here.url}/loop", INSIDE)
        assert len(here.asked) == 6


@in_loop
async def test_what_is_too_long_is_cut_and_counted_and_a_packed_bomb_is_unpacked_no_further():
    packed = {"content_type": "text/plain", "headers": {"Content-Encoding": "gzip"}}
    pages = {
        "long": {"body": b"y" * 25_000, "content_type": "text/plain"},
        "bomb": {"body": gzip.compress(b"x" * 50_000_000), **packed},
        "fits": {"body": gzip.compress(b"z" * 10_000), **packed},
    }
    async with site(**pages) as here:
        long = await fetch(f"{here.url}/long", INSIDE)
        assert (len(long.body), long.cut) == (10_000, 15_000)
        bomb = await fetch(f"{here.url}/bomb", INSIDE)
        assert bomb.body == b"x" * 10_000
        assert bomb.cut >= 1
        fits = await fetch(f"{here.url}/fits", INSIDE)
        assert (fits.body, fits.cut) == (b"z" * 10_000, 0)


@in_loop
async def test_a_slow_and_an_endless_page_are_left_in_time():
    async def endless(request):
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        while True:
            await response.write(b"x" * 10)
            await asyncio.sleep(0.05)

    async with site(endless=endless) as here:
        begun = time.monotonic()
        with pytest.raises(Unreadable, match=r"within 0\.5 s"):
            await fetch(f"{here.url}/endless", WebAccess(allow_private=True, seconds=0.5))
        assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"body": b"\x89PNG", "content_type": "image/png"}, "image/png, not text"),
        ({"body": b"PK\0\0", "content_type": "text/plain"}, "is no text"),
        (
            {"body": b"x", "headers": {"Content-Encoding": "br", "Content-Type": "text/plain"}},
            "packed as br",
        ),
        (
            {"body": b"not packed", "headers": {"Content-Encoding": "gzip", "Content-Type": "text/plain"}},
            "cannot be read",
        ),
        ({"status": 503}, "503"),
    ],
)
def test_what_is_no_text_or_no_page_is_refused_with_its_reason(response, said):
    async def run():
        async with site(page=response) as here:
            with pytest.raises(Unreadable, match=said):
                await fetch(f"{here.url}/page", INSIDE)

    asyncio.run(run())


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://example.org/", "gopher://example.org/", "data:text/plain,x",
        "javascript:x", "//x/y", "http://", "http:///x", "", "nonsense", "http://user:pass@example.org/",
        "http://[::1", "http://a:99999/",
    ],
)  # fmt: skip
def test_what_is_no_web_address_is_refused(url):
    with pytest.raises(Refused):
        check(url, allow_private=True)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "127.0.1", "2130706433", "017700000001", "0x7f000001", "0x7f.1", "0177.0.0.1",
        "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
        "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[fec0::1]",
        "[ff02::1]", "169.254.169.254", "2852039166", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "localhost", "localhost.", "LOCALHOST", "①②⑦.⓪.⓪.①",
        "127。0。0。1",
    ],
)  # fmt: skip
def test_no_spelling_of_an_address_inside_is_reached(host):
    async def run():
        async with site() as here:
            port = here.url.rpartition(":")[2]
            with pytest.raises((Refused, Unreadable)):
                await fetch(f"http://{host}:{port}/", OUTSIDE)
            assert here.asked == []

    asyncio.run(run())


@in_loop
async def test_a_name_that_leads_inside_is_refused_even_if_it_leads_outside_as_well():
    names = Names(inside_test=["127.0.0.1"], both_test=["93.184.216.34 127.0.0.1"], six_test=["::1"])
    async with site() as here:
        for name in ("inside.test", "both.test", "six.test"):
            with pytest.raises(Refused, match="private"):
                await fetch(here.url.replace("127.0.0.1", name), OUTSIDE, names)
        assert here.asked == []


@in_loop
async def test_the_address_that_was_looked_at_is_the_address_that_is_reached():
    guard = PublicResolver(Names(rebinding_test=["93.184.216.34", "127.0.0.1"]))
    assert [one["host"] for one in await guard.resolve("rebinding.test", 80)] == ["93.184.216.34"]
    with pytest.raises(Refused):  # whoever asks again gets the second answer looked at as well
        await guard.resolve("rebinding.test", 80)


@in_loop
async def test_a_name_is_resolved_once_for_a_page_and_by_nobody_but_us():
    names = Names(once_test=["127.0.0.1", "0.0.0.0"])
    async with site(page={"text": "hello"}) as here:
        page = await fetch(here.url.replace("127.0.0.1", "once.test") + "/page", INSIDE, names)
        assert page.body == b"hello"
    assert names.answers["once.test"] == ["0.0.0.0"]


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd"]
)
def test_a_redirect_is_looked_at_like_the_first_address(target):
    """The first server passes for a public one, because nobody looks at what its name leads to."""

    async def away(request):
        return web.Response(status=302, headers={"Location": target})

    async def run():
        connector = aiohttp.TCPConnector(resolver=Names(public_test=["127.0.0.1"]))
        async with site(away=away) as here, aiohttp.ClientSession(connector=connector) as session:
            with pytest.raises(Refused):
                await _follow(here.url.replace("127.0.0.1", "public.test") + "/away", OUTSIDE, session)
            assert len(here.asked) == 1

    asyncio.run(run())
