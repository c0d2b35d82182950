"""Tokens counted by an endpoint's `/tokenize`, with its chat template where it tells one (`/props` of llama.cpp).

    llama.cpp   {"content": …, "add_special": false}          → {"tokens": […]}
    vLLM        {"prompt": …, "add_special_tokens": false}    → {"count": n, "tokens": […]}
    SGLang      {"prompt": …, "add_special_tokens": false}    → {"count": n, …}

One question has all of these keys; each engine takes its own.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from stemma.compress.counting import Framed
from stemma.compress.errors import BadTokenizer
from stemma.redact import Redactor, secrets_in, without_secrets

_AT_ONCE = 16
_ADVICE = "is it llama.cpp, vLLM or SGLang, and is that its address?"


class EndpointCounter(Framed):
    """Asks an engine."""

    def __init__(self, http: aiohttp.ClientSession, url: URL, name: str, template: str | None, engine: object) -> None:
        super().__init__(template)
        self.name = name
        self._http, self._url, self._engine = http, url, engine
        self._asking = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    async def open(cls, address: str, *, name: str | None = None, engine: object = None) -> "EndpointCounter":
        """The counter at `address`, which may be the base URL of its API; `engine` is kept alive with it."""
        url = URL(address)
        root = url.with_path(url.path.rstrip("/").removesuffix("/tokenize").removesuffix("/v1") or "/")
        http = aiohttp.ClientSession()
        try:
            template = (await _props(http, root)).get("chat_template")
            name = name or without_secrets(address)
            counter = cls(http, root / "tokenize", name or "", template if template else None, engine)
            await counter.count(["one"])  # a wrong address is told now and not after an hour
        except BaseException:
            await http.close()
            raise
        return counter

    async def count(self, texts: Sequence[str]) -> list[int]:
        return list(await asyncio.gather(*(self._count(text) for text in texts)))

    async def _count(self, text: str) -> int:
        clean = text.encode("utf-8", "replace").decode()
        question = {"content": clean, "add_special": False, "prompt": clean, "add_special_tokens": False}
        body = msgspec.json.encode(question)
        try:
            async with (
                self._asking,
                self._http.post(self._url, data=body, headers={"Content-Type": "application/json"}) as answer,
            ):
                said = await answer.read()
        except aiohttp.ClientError as problem:
            raise BadTokenizer(
                f"{without_secrets(str(self._url))} cannot be reached: {problem}; {_ADVICE}"
            ) from problem
        return _number(answer.status, said, self._url)

    async def close(self) -> None:
        await self._http.close()
        engine, self._engine = self._engine, None
        await asyncio.to_thread(_drop, engine)


async def _props(http: aiohttp.ClientSession, root: URL) -> dict[str, Any]:
    """What llama.cpp says of itself; nothing from others."""
    try:
        async with http.get(root / "props") as answer:
            said = msgspec.json.decode(await answer.read()) if answer.status == 200 else {}
    except (aiohttp.ClientError, msgspec.DecodeError):
        return {}
    return said if isinstance(said, dict) else {}


def _number(status: int, said: bytes, url: URL) -> int:
    try:
        answer = msgspec.json.decode(said) if status == 200 else None
    except msgspec.DecodeError:
        answer = None
    if isinstance(answer, dict):
        count = answer.get("count", answer.get("tokens"))
        if isinstance(count, list | int):
            return len(count) if isinstance(count, list) else count
    text = Redactor(secrets_in(str(url))).start(said[:4000].decode("utf-8", "replace"), 120)
    raise BadTokenizer(f"{without_secrets(str(url))} answered {status} {text!r} and no token count; {_ADVICE}")


def _drop(engine: object) -> None:
    """Leaving the last reference ends the engine, which takes a moment."""
    del engine
