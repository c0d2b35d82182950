"""llama.cpp in this process: loading a GGUF file, and asking the server that runs beside us.

The server binds to loopback and answers only who knows its key, which is made at the start and kept in memory. It takes
one request after another; others wait their turn. Connections live as long as one question, so the engine can be used
from one event loop after another. It says nothing on the terminal. `tests/models/test_local.py` runs it.

Threads: a prompt is read by all of them, the reply is written by half. A token of a small model is too little work to
share: on two cores with two other busy processes, one thread wrote 34 tokens a second and two, waiting for each other,
16. With little else running two are faster, about 73 against 54. Single runs on a shared machine: the order of size
counts, not the figures.
"""

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from stemma.errors import MissingExtra, StemmaError
from stemma.models.errors import BrokenReply, ContextTooLong, ModelError, Refused
from stemma.models.redact import redacted_errors
from stemma.models.sse import EventStream
from stemma.redact import Redactor

_KEPT_PROMPTS_MB = 512
"""Memory for what was read of prompts, so that conversations that take turns are not read from their start."""


class BadModelFile(StemmaError, ValueError):
    """A file that is no model llama.cpp can load."""


class Engine:
    """A loaded model; it loads when first needed."""

    def __init__(self, path: Path, window: int, threads: int, chat_template: str | None) -> None:
        self._path, self._window, self._threads, self._template = path, window, threads, chat_template
        self._key = secrets.token_urlsafe()
        self._loading = threading.Lock()
        self._server: Any = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["Connection"]:
        """A way to ask, for one question."""
        address = await asyncio.to_thread(self._address)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        no_deadline = aiohttp.ClientTimeout(total=None)  # a long prompt on a small machine takes its time
        async with aiohttp.ClientSession(address, headers=headers, timeout=no_deadline) as session:
            with redacted_errors(Redactor([self._key])):
                yield Connection(session)

    async def close(self) -> None:
        """Let go of the model; a later question loads it again."""
        await asyncio.to_thread(self._drop)

    def _address(self) -> str:
        with self._loading:
            if self._server is None:
                self._server = self._load()
            return str(self._server.listening_address)

    def _drop(self) -> None:
        with self._loading:
            self._server = None  # leaving the last reference ends the server, which takes a moment

    def _load(self) -> Any:
        try:
            import xllamacpp
        except ImportError as problem:
            raise MissingExtra("a model in this process needs llama.cpp: pip install 'stemmata[local]'") from problem
        _check(self._path)
        try:
            return xllamacpp.Server(self._params(xllamacpp.CommonParams()))
        except RuntimeError as problem:
            raise BadModelFile(
                f"llama.cpp cannot load {self._path}: the file is cut short, of a kind it does not know, or too large "
                "for the memory; `stemma models get` fetches one that works"
            ) from problem

    def _params(self, params: Any) -> Any:
        params.model.path = str(self._path)
        params.api_keys, params.ui, params.endpoint_slots = [self._key], False, False
        params.n_ctx, params.n_parallel, params.cache_ram_mib = self._window, 1, _KEPT_PROMPTS_MB
        params.warmup, params.verbosity = False, 0
        params.cpuparams_batch.n_threads, params.cpuparams.n_threads = self._threads, max(1, self._threads // 2)
        params.cpuparams_batch.poll = params.cpuparams.poll = 0  # waiting threads sleep, and leave the core to others
        if self._template is not None:
            params.chat_template = self._template
        return params


class Connection:
    """The server's side of one question."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the server answers."""
        async with self._asked(path, body) as response:
            found: dict[str, Any] = msgspec.json.decode(await response.read())
            return found

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """What the server answers, piece by piece. Leaving early ends the work."""
        events = EventStream()
        async with self._asked(path, {**body, "stream": True}) as response:
            async for block in response.content.iter_any():
                for event in events.feed(block):
                    piece: dict[str, Any] = msgspec.json.decode(event)
                    if "error" in piece:
                        raise _refusal(response.status, event.decode("utf-8", "replace"))
                    yield piece

    @asynccontextmanager
    async def _asked(self, path: str, body: dict[str, Any]) -> AsyncIterator[aiohttp.ClientResponse]:
        content = msgspec.json.encode(_without_surrogates(body))
        try:
            async with self._session.post(path, data=content) as response:
                if response.status != 200:
                    raise _refusal(response.status, await response.text(errors="replace"))
                yield response
        except aiohttp.ClientError as problem:
            raise BrokenReply(f"llama.cpp broke off: {problem}") from problem


def _check(path: Path) -> None:
    """Say what is wrong with the file where that can be told; llama.cpp does not."""
    if not path.is_file():
        raise BadModelFile(f"there is no model file {path}; `stemma models get` fetches one")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise BadModelFile(f"{path} is no GGUF file; `stemma models get` fetches one")


def _refusal(status: int, body: str) -> ModelError:
    if "exceed_context_size" in body or "exceeds the available context" in body:
        return ContextTooLong(f"the context does not fit the model's window: {body}", status=status, body=body)
    kind = Refused if 400 <= status < 500 else BrokenReply
    return kind(f"llama.cpp answered {status}: {body}", status=status, body=body)


def _without_surrogates(value: Any) -> Any:
    """llama.cpp reads UTF-8, which has no lone surrogates: they become question marks."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return [_without_surrogates(item) for item in value]
    return value
