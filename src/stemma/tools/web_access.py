"""What the web tools may reach, and through whom they search."""

import msgspec

from stemma.redact import NOTHING_SECRET, Redactor, without_secrets
from stemma.tools.tool import ToolError


class WebNotSet(ToolError):
    """Web tools were asked for, and nothing says through whom to search."""


class WebAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the web."""

    provider: str = "searxng"
    """Who answers searches; `tools/web_search.py` has the list."""
    search_url: str | None = None
    """Where a SearXNG instance is, or another address for a provider that has one of its own."""
    api_key: str | None = None
    allow_private: bool = False
    """Whether pages may be read from this machine and its own network."""
    seconds: float = 20.0
    """How long one search or one page may take, redirects included."""
    page_bytes: int = 4 << 20
    """How much of a page is read."""
    page_chars: int = 20_000
    """How much of a page's text the model gets."""
    redactor: Redactor = NOTHING_SECRET
    """Takes secrets out of what is read before it is cut."""

    def __repr__(self) -> str:
        return f"WebAccess(provider={self.provider!r}, search_url={without_secrets(self.search_url)!r})"
