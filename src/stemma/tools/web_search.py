"""Searching the web: one table of who answers, how to ask, and where in the answer the results are.

A search goes to the address that the settings name, so that address may be private, as a SearXNG on this machine is;
redirects are not followed. `tests/tools/test_web.py` asks a server that speaks each of these.
"""

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import aiohttp
import msgspec

from stemma.redact import Redactor, secrets_in
from stemma.tools.tool import ToolError
from stemma.tools.web_access import WebAccess, WebNotSet

_MOST_BYTES = 1 << 19
_LONGEST_FIELD = 10_000


class SearchFailed(ToolError):
    """A search that brought no answer."""


class Hit(msgspec.Struct, frozen=True):
    """One result."""

    title: str
    url: str
    text: str


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Someone who answers searches."""

    url: str = ""
    """Where, unless the settings say."""
    ask: Callable[[str, int], dict[str, Any]]
    """Query and limit as parameters or as a JSON body, in aiohttp's words."""
    key: Callable[[str], dict[str, str]] | None = None
    """The header that carries the key; None if there is no key."""
    found: tuple[str, ...]
    """The way to the list of results."""
    fields: tuple[str, str, str]
    """What title, address and text are called in a result."""


PROVIDERS: Mapping[str, Provider] = {
    "searxng": Provider(
        ask=lambda query, limit: {"params": {"q": query, "format": "json"}},
        found=("results",),
        fields=("title", "url", "content"),
    ),
    "tavily": Provider(
        url="https://api.tavily.com/search",
        ask=lambda query, limit: {"json": {"query": query, "max_results": limit}},
        key=lambda key: {"Authorization": f"Bearer {key}"},
        found=("results",),
        fields=("title", "url", "content"),
    ),
    "brave": Provider(
        url="https://api.search.brave.com/res/v1/web/search",
        ask=lambda query, limit: {"params": {"q": query, "count": str(limit), "text_decorations": "false"}},
        key=lambda key: {"X-Subscription-Token": key},
        found=("web", "results"),
        fields=("title", "url", "description"),
    ),
    "serper": Provider(
        url="https://google.serper.dev/search",
        ask=lambda query, limit: {"json": {"q": query, "num": limit}},
        key=lambda key: {"X-API-KEY": key},
        found=("organic",),
        fields=("title", "link", "snippet"),
    ),
}


def check_access(access: WebAccess) -> Provider:
    """Who answers, if all is set that is needed to ask."""
    provider = PROVIDERS.get(access.provider)
    if provider is None:
        raise WebNotSet(f"there is no search provider {access.provider!r}; choose one of {', '.join(PROVIDERS)}")
    if not (access.search_url or provider.url):
        raise WebNotSet(f"{access.provider} needs the address of an instance: set web.search_url")
    if provider.key is not None and not access.api_key:
        raise WebNotSet(f"{access.provider} needs a key: set web.api_key_env to the variable that holds it")
    return provider


async def search(query: str, limit: int, access: WebAccess) -> list[Hit]:
    """What the provider finds, its best first."""
    provider = check_access(access)
    try:
        async with asyncio.timeout(access.seconds):
            answer = await _ask(provider, query, limit, access)
    except TimeoutError:
        raise SearchFailed(f"the search did not come within {access.seconds:g} s") from None
    except aiohttp.ClientError as problem:
        said = _redactor(access).text(str(problem)) or type(problem).__name__
        raise SearchFailed(f"the search failed: {said}") from problem
    for name in provider.found:
        answer = answer.get(name) if isinstance(answer, dict) else None
    hits = answer if isinstance(answer, list) else []
    found, redactor = islice((hit for hit in hits if isinstance(hit, dict)), limit), _redactor(access)
    return [_hit(hit, provider.fields, redactor) for hit in found]


async def _ask(provider: Provider, query: str, limit: int, access: WebAccess) -> Any:
    words = provider.ask(query, limit)
    headers = {"User-Agent": "stemma", "Accept": "application/json"}
    if provider.key is not None and access.api_key:
        headers |= provider.key(access.api_key)
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False) as session,
        session.request(
            "POST" if "json" in words else "GET",
            _address(access, provider),
            headers=headers,
            allow_redirects=False,
            **words,
        ) as response,
    ):
        body = bytearray()
        while len(body) <= _MOST_BYTES and (more := await response.content.read(_MOST_BYTES)):
            body += more
        if response.status != 200:
            said = _redactor(access).start(body[:2000].decode("utf-8", "replace"), 200)
            raise SearchFailed(f"{access.provider} answered {response.status}: {said}")
    if len(body) > _MOST_BYTES:
        raise SearchFailed(f"{access.provider} answered with more than {_MOST_BYTES >> 10} KB")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise SearchFailed(f"{access.provider} answered with something that is not JSON") from None


def _redactor(access: WebAccess) -> Redactor:
    return access.redactor.plus([access.api_key or "", *secrets_in(access.search_url)])


def _address(access: WebAccess, provider: Provider) -> str:
    """A SearXNG instance is named by its front page; searches go to `/search` below it."""
    if not access.search_url or provider.url:
        return access.search_url or provider.url
    return access.search_url.rstrip("/").removesuffix("/search") + "/search"


def _hit(found: dict[str, Any], fields: tuple[str, str, str], redactor: Redactor) -> Hit:
    title, url, text = (_text(found.get(field), redactor) for field in fields)
    return Hit(title, url, text)


def _text(value: Any, redactor: Redactor) -> str:
    if not isinstance(value, str):
        return ""
    return " ".join(redactor.start(value[: 2 * _LONGEST_FIELD], _LONGEST_FIELD).split())
