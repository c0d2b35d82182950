"""A model behind a llama.cpp server, asked token by token: `/apply-template`, `/tokenize`, `/completion` with ids.

    model = LlamaServerModel("qwen", "http://127.0.0.1:8080")

Its OpenAI-compatible door (`OpenAIModel`) gives no prompt ids; this one gives all, so its rows can be proved. In the
config it is `protocol: tokens`. `tests/models/test_llama_server.py` runs it against a real server.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from stemma.models.errors import BadEndpoint
from stemma.models.local_engine import Connection
from stemma.models.redact import redacted_errors
from stemma.models.token_model import TokenModel
from stemma.redact import Redactor, secrets_in, without_secrets


class LlamaServer:
    """A server somewhere; connections live as long as one question."""

    def __init__(self, url: str, api_key: str | None, seconds: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadEndpoint(f"{without_secrets(url)!r} is no http or https URL of a llama.cpp server")
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._redactor = Redactor([api_key or "", *secrets_in(url)])
        self._deadline = aiohttp.ClientTimeout(total=seconds)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        async with aiohttp.ClientSession(self._url, headers=self._headers, timeout=self._deadline) as session:
            with redacted_errors(self._redactor):
                yield Connection(session)

    async def close(self) -> None:
        """No connection is kept."""


class LlamaServerModel(TokenModel):
    """A model that a llama.cpp server serves."""

    def __init__(
        self,
        name: str,
        url: str,
        api_key: str | None = None,
        *,
        context_window: int | None = None,
        seconds: float = 600.0,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """A model; no connection is made before the first question.

        url: the server's, with or without `/v1`
        seconds: how long one request may take
        """
        super().__init__(name, LlamaServer(url, api_key, seconds), context_window=context_window, params=params)
