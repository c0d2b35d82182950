"""A model in this process: any GGUF file, by llama.cpp.

It speaks the hermes tool protocol under a grammar, so that every reply is well-formed, and gives exact token ids and
logprobs. The prompt is put together from ids: what somebody wrote is encoded without control tokens, so that no text
can forge a turn; a reply that is part of a later context stands there with the very ids that were sampled, so that the
later prompt extends the earlier one. `tests/models/test_local.py` runs it.

Needs the extra: `pip install 'stemmata[local]'`. The server inside binds to loopback.
"""

import asyncio
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from stemma.core.call import Call, pack_ids, pack_logprobs
from stemma.errors import MissingExtra
from stemma.models.errors import BrokenReply, ContextTooLong, ModelError
from stemma.models.grammar import reply_grammar
from stemma.models.hermes_protocol import as_text_messages, read_reply
from stemma.models.protocol import Delta, OnDelta, Reply, Request

_HOLE = "\ue000{}\ue001"
"""Stands for a message's text while the template is applied; private characters that no template has."""

_SAMPLING = {"temperature": 0.3, "max_tokens": 256}


class LocalModel:
    """A GGUF model."""

    def __init__(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        context_window: int = 4096,
        threads: int = 2,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self.name = name or self.path.stem
        self.context_window = context_window
        self._threads, self._params = threads, {**_SAMPLING, **(params or {})}
        self._starting = asyncio.Lock()
        self._server: Any = None
        self._http: aiohttp.ClientSession | None = None
        self._sampled: dict[tuple[bytes, str], list[int]] = {}
        """Ids that were sampled for a text after a context: by the hash of the context's ids, and the text."""

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        await self._start()
        prompt = await self._prompt_ids(as_text_messages(request.messages, request.tools))
        params = {**self._params, **request.params}
        begun, clock = time.time(), time.monotonic()
        said = await self._post("/completion", _body(prompt, params, reply_grammar(request.tools)))
        seconds = time.monotonic() - clock
        sampled, logprobs = _tokens(said)
        text = said["content"]
        self._sampled[_key(prompt), text] = sampled[:-1] if said["stop_type"] == "eos" else sampled
        if on_delta is not None:
            on_delta(Delta("text", text))
        message = read_reply(text, nonce=str(len(request.messages)))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)}
        call = Call(
            model=self.name,
            tools=request.tools,
            params=params,
            finish_reason=_finish(said, message),
            usage={**usage, "total_tokens": len(prompt) + len(sampled)},
            started=begun,
            seconds=seconds,
            prompt_ids=pack_ids(prompt),
            sampled_ids=pack_ids(sampled),
            logprobs=pack_logprobs(logprobs),
            extra={"raw": text, "protocol": "hermes"},
        )
        return Reply(message=message, call=call)

    async def samples(self, request: Request, n: int) -> list[Reply]:
        return [await self.reply(request) for _ in range(n)]

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
        server, self._server, self._http = self._server, None, None
        await asyncio.to_thread(_drop, server)

    # ── the prompt ───────────────────────────────────────────────────────────────────────────────────────────

    async def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """The ids of a conversation: the template's with control tokens, everybody's text without."""
        holes = [{**message, "content": _HOLE.format(i)} for i, message in enumerate(messages)]
        rest = (await self._post("/apply-template", {"messages": holes}))["prompt"]
        ids: list[int] = []
        for i, message in enumerate(messages):
            frame, _, rest = rest.partition(_HOLE.format(i))
            ids += await self._encode(frame, control=True)
            known = self._sampled.get((_key(ids), message["content"])) if message["role"] == "assistant" else None
            ids += known if known is not None else await self._encode(message["content"], control=False)
        return ids + await self._encode(rest, control=True)

    async def _encode(self, text: str, *, control: bool) -> list[int]:
        if not text:
            return []
        said = await self._post("/tokenize", {"content": text, "add_special": False, "parse_special": control})
        found: list[int] = said["tokens"]
        return found

    # ── the engine ───────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self) -> None:
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.to_thread(_load, self.path, self.context_window, self._threads)
                self._http = aiohttp.ClientSession(self._server.listening_address)

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert self._http is not None
        content = msgspec.json.encode(_without_surrogates(body))
        try:
            async with self._http.post(path, data=content, headers={"Content-Type": "application/json"}) as response:
                answer = await response.read()
        except aiohttp.ClientError as problem:
            raise BrokenReply(f"llama.cpp broke off: {problem}") from problem
        if response.status != 200:
            raise _refusal(response.status, answer.decode("utf-8", "replace"))
        found: dict[str, Any] = msgspec.json.decode(answer)
        return found


def _load(path: Path, window: int, threads: int) -> Any:
    try:
        import xllamacpp
    except ImportError as problem:
        raise MissingExtra("a model in this process needs llama.cpp: pip install 'stemmata[local]'") from problem
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup = window, 1, False
    params.cpuparams.n_threads = threads
    params.verbosity = 0
    return xllamacpp.Server(params)


def _drop(server: Any) -> None:
    """Leaving the last reference ends the engine, which takes a moment."""
    del server


def _body(prompt: list[int], params: Mapping[str, Any], grammar: str) -> dict[str, Any]:
    rest = {key: value for key, value in params.items() if key != "max_tokens"}
    fixed = {"prompt": prompt, "n_predict": params["max_tokens"], "grammar": grammar}
    return {**rest, **fixed, "n_probs": 1, "return_tokens": True, "cache_prompt": True}


def _tokens(said: dict[str, Any]) -> tuple[list[int], list[float]]:
    """What was sampled, and how likely each was; the two must name the same ids."""
    sampled, told = said["tokens"], said["completion_probabilities"]
    if [entry["id"] for entry in told] != sampled:
        raise BrokenReply("llama.cpp gave logprobs for other tokens than it sampled")
    return sampled, [entry["logprob"] for entry in told]


def _finish(said: dict[str, Any], message: dict[str, Any]) -> str:
    if said["stop_type"] == "limit":
        return "length"
    return "tool_calls" if message.get("tool_calls") else "stop"


def _refusal(status: int, body: str) -> ModelError:
    if "exceed_context_size" in body or "exceeds the available context" in body:
        return ContextTooLong(f"the context does not fit the model's window: {body[:300]}", status=status, body=body)
    return BrokenReply(f"llama.cpp answered {status}: {body[:300]}", status=status, body=body)


def _key(ids: list[int]) -> bytes:
    return sha256(repr(ids).encode()).digest()


def _without_surrogates(value: Any) -> Any:
    """llama.cpp reads UTF-8, which has no lone surrogates: they become replacement characters."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value
