"""Any endpoint that speaks OpenAI's chat completions: vLLM, SGLang, llama.cpp, Ollama, OpenRouter, OpenAI, …

    model = OpenAIModel("Qwen/Qwen3-8B", "http://127.0.0.1:8000/v1", tokens="vllm")
    reply = await model.reply(Request(messages=[{"role": "user", "content": "Name a prime."}]))

A reply is whole or absent, and comes or fails within `deadlines.total` (`wire.py`); what may pass is asked again
(`retry.py`); every failure is a `ModelError` with status and body, and no error or record holds the key (`redact.py`).
Streaming shows pieces while they come (a retry begins with `Delta("again", …)`) and ends in the same reply.
`params` are sent with every request, `Request.params` over them, and a value of None takes a parameter out;
`extra_body` is sent as well, for what is no sampling parameter. All of it is recorded in `Call.params`.
`tests/models/test_openai_api.py`, `test_faults.py` and `test_secrets.py` prove it; `benchmarks/client.py` measures it.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import msgspec

from stemma.core.call import encode_tools, plain_tools
from stemma.core.canonical import plain
from stemma.core.message import RAW_TURN, as_sent
from stemma.models.bodies import JsonBody, Receiver
from stemma.models.completion import Asked, read_completion
from stemma.models.endpoint import Endpoint
from stemma.models.errors import BadEndpoint, ContextTooLong, ModelError, Refused
from stemma.models.jsontext import write_json
from stemma.models.prices import Prices
from stemma.models.protocol import Delta, OnDelta, Reply, Request
from stemma.models.redact import RedactedDeltas
from stemma.models.retry import Chance, Retries, Sleep, persist
from stemma.models.tokens import ASK
from stemma.models.wire import Deadlines, Wire
from stemma.redact import secrets_in

SAYING_COSTS = ("openrouter.ai",)
"""Hosts whose replies say what they cost (`usage.cost`)."""
RESERVED = ("model", "messages", "tools", "n", "stream")
"""What has its own way in, and so is no parameter."""


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint."""

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        tokens: Literal["vllm", "sglang", "llama.cpp"] | None = None,
        stream: bool = False,
        samples_together: bool = True,
        reasoning_field: str | None = None,
        context_window: int | None = None,
        prices: Prices | None = None,
        deadlines: Deadlines | None = None,
        retries: Retries | None = None,
        connections: int = 1_000,
        largest: int = 64 * 2**20,
        clock: Callable[[], float] = time.time,
        sleep: Sleep = asyncio.sleep,
        chance: Chance = random.random,
    ) -> None:
        """A model; no connection is made before the first question.

        tokens: ask for token ids and logprobs in the way of this engine (`tokens.ASK`)
        stream: stream also when nobody watches: then the deadline between bytes notices a dead endpoint early
        samples_together: ask for n samples in one request; where that fails they are asked for one by one anyway, but
            llama.cpp never answers if n is more than its slots, and then cannot prove its token ids either
        reasoning_field: the name under which earlier reasoning is sent back, if it is; it stays in the graph either way
        connections: how many requests may be under way; the others wait their turn
        largest: how many bytes of a reply are taken
        clock, sleep, chance: time and chance come in from outside
        """
        if not model:
            raise BadEndpoint("a model needs a name: the one under which the endpoint serves it")
        self.name, self.context_window = model, context_window
        sent = [*secrets_in(extra_body or {}), *secrets_in(params or {})]
        self._endpoint = Endpoint(base_url, api_key, headers, sent)
        self._url = self._endpoint.url("chat", "completions")
        self._params = {**ASK.get(tokens or "", {}), **(extra_body or {}), **(params or {})}
        self._stream, self._reasoning_field, self.prices = stream, reasoning_field, prices
        self._deadlines, self._retries = deadlines or Deadlines(), retries or Retries()
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._wire = Wire(
            self._endpoint.headers, self._deadlines, connections=connections, largest=largest, clock=clock
        )
        self._samples_alone = not samples_together or tokens == "llama.cpp"

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r}, {str(self._endpoint)!r})"

    @property
    def params(self) -> Mapping[str, Any]:
        """What is sent with every request."""
        return self._params

    @property
    def tells_cost(self) -> bool:
        """Whether replies come with what they cost: by our prices, or because this endpoint says so."""
        return self.prices is not None or self._url.host in SAYING_COSTS

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """One answer, streamed to `on_delta` while it comes if given."""
        replies = await self._ask(request, on_delta=on_delta, until=self._until())
        return replies[0]

    async def samples(self, request: Request, n: int) -> list[Reply]:
        """`n` answers to one question, in one request if the endpoint can do that."""
        until = self._until()
        replies = await self._together(request, n, until) if n > 1 and not self._samples_alone else []
        missing = range(len(replies), n)
        more = await asyncio.gather(
            *(self._ask(_reseeded(request, self._params, i), until=until) for i in missing), return_exceptions=True
        )
        for answer in more:
            if isinstance(answer, BaseException):
                raise answer
            replies += answer[:1]
        return replies[:n]

    async def close(self) -> None:
        """Let go of connections; a later question opens new ones."""
        await self._wire.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, *path: str) -> Any:
        """The JSON that a GET gives, such as `get("models")`; asked once, within the same deadlines."""
        body = JsonBody()
        with self._endpoint.errors():
            await self._wire.ask(self._endpoint.url(*path), None, lambda _: body, self._until())
        return self._endpoint.redactor.value(body.payload())

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._deadlines.total

    async def _together(self, request: Request, n: int, until: float) -> list[Reply]:
        """As many of `n` as one request gives; none where the endpoint will not have `n`."""
        try:
            replies = await self._ask(request, n=n, until=until)
        except ContextTooLong:
            raise
        except Refused:
            # Perhaps because of `n`; if not, asking one by one says why.
            replies = []
        self._samples_alone = len(replies) < 2
        return replies

    async def _ask(self, request: Request, *, until: float, n: int = 1, on_delta: OnDelta | None = None) -> list[Reply]:
        streamed = self._stream or on_delta is not None
        params = self._merged(request)
        question = _Question(request, params, self._body(request, params, n=n, streamed=streamed), streamed)

        shown = _guarded(on_delta) if on_delta is not None else None
        theirs: BaseException | None
        try:
            return await persist(
                lambda number: self._attempt(question, number, until, shown),
                self._retries,
                until=until,
                sleep=self._sleep,
                chance=self._chance,
                before_retry=lambda problem: shown(Delta("again", str(problem))) if shown else None,
            )
        except _TheirFailure as carrier:
            theirs = carrier.__cause__
        assert theirs is not None
        raise theirs

    async def _attempt(self, question: "_Question", number: int, until: float, on_delta: OnDelta | None) -> list[Reply]:
        sent = secrets_in(question.request.params)
        redactor = self._endpoint.redactor.plus(sent)
        shown = RedactedDeltas(on_delta, redactor) if on_delta is not None else None
        receiver = Receiver(streamed=question.streamed, on_delta=shown)
        time_now = asyncio.get_running_loop().time
        started, begun = self._clock(), time_now()
        with self._endpoint.errors(sent):
            headers = await self._wire.ask(self._url, question.body, receiver, until)
            if shown is not None:
                shown.end()
            asked = Asked(
                model=self.name,
                request=question.request,
                params=question.params,
                started=started,
                seconds=time_now() - begun,
                attempt=number,
                headers=headers,
                prices=self.prices,
            )
            return read_completion(receiver.payload(), asked, redactor)

    def _merged(self, request: Request) -> dict[str, Any]:
        return _checked({**self._params, **request.params}) if request.params else self._own_params

    @cached_property
    def _own_params(self) -> dict[str, Any]:
        """What is sent where a request adds nothing."""
        return _checked(self._params)

    def _body(self, request: Request, params: dict[str, Any], *, n: int, streamed: bool) -> bytes:
        body: dict[str, Any] = {"model": self.name, "messages": self._outgoing(request.messages)}
        if request.tools:
            body["tools"] = _ready(request.tools)
        if n > 1:
            body["n"] = n
        if streamed:
            body["stream"] = True
            if (
                "stream_options" not in self._params | request.params
            ):  # None there: an endpoint that knows no such thing
                body["stream_options"] = {"include_usage": True}
        return write_json({**body, **params})

    def _outgoing(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        messages = [as_sent(message) if RAW_TURN in message else message for message in messages]
        if self._reasoning_field == "reasoning":
            return messages
        return [self._renamed(message) if "reasoning" in message else message for message in messages]

    def _renamed(self, message: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in message.items() if key != "reasoning"}
        return kept if self._reasoning_field is None else {**kept, self._reasoning_field: message["reasoning"]}


def _checked(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters that can be sent and kept; a reply that was paid for must not be lost to a bad one afterwards."""
    if reserved := [key for key in RESERVED if key in params]:
        raise BadEndpoint(f"{reserved[0]} is no parameter; it has its own way in (samples() for n, stream=True)")
    kept: dict[str, Any] = plain({key: value for key, value in params.items() if value is not None}, "params")
    return kept


def _ready(tools: list[dict[str, Any]]) -> Any:
    """Tools as they are sent: their JSON, made once, unless it holds what only the slow way can write."""
    checked = plain_tools(tools)
    written = encode_tools(checked)
    return msgspec.Raw(written) if written.isascii() else checked


class _Question(NamedTuple):
    """One request, ready to be sent as often as it takes."""

    request: Request
    params: dict[str, Any]
    body: bytes
    streamed: bool


class _TheirFailure(Exception):
    """Carries what a callback raised past those who would take it for a failure of the connection."""


def _guarded(on_delta: OnDelta) -> OnDelta:
    def shown(delta: Delta) -> None:
        try:
            on_delta(delta)
        except (OSError, RecursionError, ModelError) as problem:
            raise _TheirFailure from problem

    return shown


def _reseeded(request: Request, params: Mapping[str, Any], i: int) -> Request:
    """The same question for the `i`-th sample: with one seed, `n` single samples would be one sample `n` times."""
    seed = request.params.get("seed", params.get("seed"))
    if type(seed) is not int or i == 0:
        return request
    return Request(messages=request.messages, tools=request.tools, params={**request.params, "seed": seed + i})
