"""Where an endpoint is and how one identifies oneself to it, checked before anything is sent.

A base URL ends where `/chat/completions` begins; its query (Azure's `api-version`) goes with every request. A key
belongs into `api_key`, not into the URL, which is shown in errors. `tests/models/test_endpoint.py` proves it.
"""

from collections.abc import Mapping

from yarl import URL

from stemma.models.errors import BadEndpoint
from stemma.models.redact import Redactor

_SECRET_NAMES = ("auth", "key", "token", "secret", "cookie")


class Endpoint:
    """A base URL with its credentials."""

    def __init__(self, base_url: str, api_key: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        self._base = _base(base_url)
        # A key read from a file ends with a line break that is not part of it.
        key = (api_key or "").strip()
        ours = {"Content-Type": "application/json", "User-Agent": "stemma"}
        if key:
            ours["Authorization"] = f"Bearer {key}"
        given = {name.lower() for name in headers or ()}
        self.headers = {**{name: value for name, value in ours.items() if name.lower() not in given}, **(headers or {})}
        for name, value in self.headers.items():
            if not (value.isascii() and value.isprintable()):
                raise BadEndpoint(f"the header {name} (or the key in it) holds characters that HTTP cannot carry")
        self.redact = Redactor([key, *_secret_values(headers or {}), *_secret_values(self._base.query)])

    def __str__(self) -> str:
        return self.redact.text(str(self._base))

    def url(self, *path: str) -> URL:
        """The address of one of its services, such as `chat/completions`."""
        return self._base.joinpath(*path).with_query(self._base.query)


def _secret_values(named: Mapping[str, str]) -> list[str]:
    """Values whose name says that they are secret, and what stands in them behind a word such as `Bearer`."""
    values = [value for name, value in named.items() if any(part in name.lower() for part in _SECRET_NAMES)]
    return [form for value in values for form in (value, value.rpartition(" ")[2])]


def _base(base_url: str) -> URL:
    try:
        url = URL(base_url.strip())
    except ValueError:
        raise BadEndpoint(f"{base_url!r:.80} is no URL; give one like http://127.0.0.1:8000/v1") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise BadEndpoint(f"{base_url!r:.80} is no http or https URL; give one like http://127.0.0.1:8000/v1")
    if url.user or url.password:
        raise BadEndpoint(f"the URL of {url.host} holds credentials; give them as api_key or as a header")
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.with_path(path or "/").with_query(url.query)
