"""Where an endpoint is and how one identifies oneself to it, checked before anything is sent.

A base URL ends where `/chat/completions` begins; its query (Azure's `api-version`) goes with every request. A key
belongs into `api_key`, not into the URL, which is shown in errors. `tests/models/test_endpoint.py` proves it.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

from yarl import URL

from stemma.models.errors import BadEndpoint
from stemma.models.redact import redacted_errors
from stemma.redact import Redactor, secrets_in, without_secrets


class Endpoint:
    """A base URL with its credentials."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        """`secrets` are what else goes there and must not be seen, such as a key in the body of requests."""
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
        self.redactor = Redactor([key, *secrets_in(headers or {}, opaque=True), *secrets_in(base_url), *secrets])
        """Takes our credentials out of what the endpoint says."""
        # In an error no header is of use, whatever its name; a reply may well say the same as one that is no secret.
        self._strict = self.redactor.plus((headers or {}).values())

    def __str__(self) -> str:
        return self.redactor.text(without_secrets(str(self._base)))

    def url(self, *path: str) -> URL:
        """The address of one of its services, such as `chat/completions`."""
        return self._base.joinpath(*path).with_query(self._base.query)

    def errors(self, secrets: Iterable[str] = ()) -> AbstractContextManager[None]:
        """Cleans every `ModelError` that leaves the block, of these secrets as well."""
        return redacted_errors(self._strict.plus(secrets))


def _base(base_url: str) -> URL:
    shown = f"{without_secrets(base_url)!r:.80}"
    try:
        url = URL(base_url.strip())
    except ValueError:
        raise BadEndpoint(f"{shown} is no URL; give one like http://127.0.0.1:8000/v1") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise BadEndpoint(f"{shown} is no http or https URL; give one like http://127.0.0.1:8000/v1")
    if url.user or url.password:
        raise BadEndpoint(f"the URL of {url.host} holds credentials; give them as api_key or as a header")
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.with_path(path or "/").with_query(url.query)
