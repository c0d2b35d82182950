"""The web tools: search, and read pages as text. `tests/tools/test_web.py` proves it."""

import asyncio
from typing import TYPE_CHECKING

from stemma.tools.failures import exhaustion
from stemma.tools.tool import Tool, ToolError, ToolResult, as_tool
from stemma.tools.web_access import WebAccess
from stemma.tools.web_text import decode, readable

if TYPE_CHECKING:
    from stemma.tools.web_fetch import Fetched

__all__ = ["WebAccess", "web_tools"]

_MOST_HITS = 20
_MOST_PAGES = 5


def web_tools(access: WebAccess) -> tuple[Tool, ...]:
    """The web tools for that access; what is missing in it is told now, not when a model first searches."""
    from stemma.tools.web_search import check_access, search

    check_access(access)

    async def web_search(query: str, limit: int = 5) -> str:
        """Search the web. Gives title, address and a piece of text of each result.

        query: what to search for
        limit: how many results, at most 20
        """
        hits = await search(query, min(max(limit, 1), _MOST_HITS), access)
        return "\n\n".join(f"{n}. {hit.title}\n{hit.url}\n{hit.text}" for n, hit in enumerate(hits, 1)) or "no results"

    async def web_extract(urls: list[str]) -> ToolResult:
        """Read web pages as text.

        urls: the addresses of the pages, at most 5
        """
        if not 0 < len(urls) <= _MOST_PAGES:
            raise ToolError(f"give between 1 and {_MOST_PAGES} addresses, not {len(urls)}")
        from stemma.tools.web_fetch import fetch

        fetched = await asyncio.gather(*(fetch(url, access) for url in urls), return_exceptions=True)
        # One after the other: threads that compute side by side would all keep the event loop waiting.
        pages = [await _page(url, page, access) for url, page in zip(urls, fetched, strict=True)]
        text = "\n\n---\n\n".join(page.text for page in pages)
        return ToolResult(text=text, ok=all(page.ok for page in pages), cut=sum(page.cut for page in pages))

    return tuple(as_tool(function, toolset="web") for function in (web_search, web_extract))


async def _page(url: str, fetched: "Fetched | BaseException", access: WebAccess) -> ToolResult:
    """One page among several: that it cannot be read is told in its place."""
    if isinstance(fetched, ToolError) and exhaustion(fetched) is None:
        return ToolResult(text=f"{url}\nError: {fetched}", ok=False)
    if isinstance(fetched, BaseException):
        raise fetched
    text = await asyncio.to_thread(_text, fetched)
    cut = max(len(text) - access.page_chars, 0) + fetched.cut
    end = f"\n… [{cut} characters left out]" if cut else ""
    shown = access.redactor.start(text[: 2 * access.page_chars], access.page_chars)
    return ToolResult(text=f"{fetched.url}\n{shown}{end}", cut=cut)


def _text(fetched: "Fetched") -> str:
    text = decode(fetched.body, fetched.charset)
    if not fetched.is_html:
        return text
    page = readable(text, fetched.url)
    return f"{page.title}\n\n{page.text}" if page.title else page.text
