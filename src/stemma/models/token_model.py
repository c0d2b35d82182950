"""Token in, token out: a model of llama.cpp that is sent the ids of its prompt and gives those it sampled.

It speaks the hermes tool protocol under a grammar, so that every reply is well-formed, and gives exact token ids and
logprobs: those of the model itself, before grammar and temperature. The prompt is put together from ids: no text can
forge a turn, and a later prompt extends the earlier one (`local_prompt`). `LocalModel` runs it in this process,
`LlamaServerModel` asks a server. `tests/models/test_local.py` and `tests/models/test_llama_server.py` run both.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol

import msgspec

from stemma.core.call import Call, pack_ids, pack_logprobs
from stemma.models.errors import BrokenReply
from stemma.models.grammar import reply_grammar
from stemma.models.hermes_protocol import as_text_messages, fresh_nonce, read_reply
from stemma.models.local_engine import Connection
from stemma.models.local_pieces import Pieces
from stemma.models.local_prompt import PromptWriter
from stemma.models.protocol import OnDelta, Reply, Request

_SAMPLING = {"temperature": 0.3, "max_tokens": 1024}


class TokenEngine(Protocol):
    """Where llama.cpp runs."""

    def connect(self) -> AbstractAsyncContextManager[Connection]:
        """A way to ask, for one question."""
        ...

    async def close(self) -> None:
        """Let go of it; a later question opens it again."""
        ...


class TokenModel:
    """A model behind an engine of llama.cpp."""

    def __init__(
        self,
        name: str,
        engine: TokenEngine,
        *,
        context_window: int | None,
        tight: bool = False,
        cost: float | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.context_window = name, context_window
        self._engine, self._tight, self._cost = engine, tight, cost
        self.params = {**_SAMPLING, **(params or {})}
        self.tells_cost = False
        self._writer = PromptWriter()

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        params = {**self.params, **request.params}
        async with self._engine.connect() as engine:
            prompt = await self._writer.ids(engine, as_text_messages(request.messages, request.tools))
            started, clock = time.time(), time.monotonic()
            said = await _sample(engine, self._body(prompt, params, request), on_delta)
            seconds = time.monotonic() - clock
        message = read_reply(said.text, fresh_nonce(request.messages))
        stands = as_text_messages([message], None)[-1]["content"]
        self._writer.remember(prompt, stands, said.without_end())
        used = {"prompt_tokens": len(prompt), "completion_tokens": len(said.ids)}
        call = Call(
            model=self.name,
            tools=request.tools,
            params=params,
            finish_reason=said.finish_reason(message),
            usage={**used, "total_tokens": len(prompt) + len(said.ids)},
            started=started,
            seconds=seconds,
            cost=self._cost,
            prompt_ids=pack_ids(prompt),
            sampled_ids=pack_ids(said.ids),
            logprobs=pack_logprobs(said.logprobs),
            extra={"protocol": "hermes", **({"raw": said.text} if said.text != stands else {})},
        )
        return Reply(message=message, call=call)

    async def samples(self, request: Request, n: int) -> list[Reply]:
        """One after another; a given seed is counted up, or all would be the same."""
        seed = request.params.get("seed", self.params.get("seed"))
        seeds = [{"seed": seed + i} if isinstance(seed, int) else {} for i in range(n)]
        asked = [msgspec.structs.replace(request, params={**request.params, **own}) for own in seeds]
        return [await self.reply(one) for one in asked]

    async def close(self) -> None:
        """Let go of the memory; a later question loads the model again."""
        await self._engine.close()

    def _body(self, prompt: list[int], params: Mapping[str, Any], request: Request) -> dict[str, Any]:
        """The question as llama.cpp takes it."""
        rest = {key: value for key, value in params.items() if key != "max_tokens"}
        grammar = reply_grammar(request.tools, tight=self._tight, answer_due=self._tight and _has_called(request))
        fixed = {"prompt": prompt, "n_predict": params["max_tokens"], "grammar": grammar}
        return {**rest, **fixed, "n_probs": 1, "return_tokens": True, "cache_prompt": True}


class _Said(msgspec.Struct, frozen=True):
    """What was sampled."""

    text: str
    ids: list[int]
    logprobs: list[float]
    stop: str
    """Why it ended: eos, or limit."""

    def without_end(self) -> list[int]:
        """The ids of the text alone; the template writes the end of a turn itself."""
        return self.ids[:-1] if self.stop == "eos" else self.ids

    def finish_reason(self, message: Mapping[str, Any]) -> str:
        if self.stop == "limit":
            return "length"
        return "tool_calls" if message.get("tool_calls") else "stop"


async def _sample(engine: Connection, body: dict[str, Any], on_delta: OnDelta | None) -> _Said:
    """One reply, whole; leaving early, as a cancelled task does, ends the work."""
    texts: list[str] = []
    ids: list[int] = []
    logprobs: list[float] = []
    shown, stop = Pieces(on_delta), None
    async with aclosing(engine.stream("/completion", body)) as stream:
        async for piece in stream:
            texts.append(piece["content"])
            ids += piece["tokens"]
            logprobs += _logprobs(piece)
            stop = piece.get("stop_type")
            shown.feed(piece["content"])
    shown.end()
    if stop is None:
        raise BrokenReply("llama.cpp ended its reply without saying why")
    return _Said("".join(texts), ids, logprobs, stop)


def _logprobs(piece: Mapping[str, Any]) -> list[float]:
    """How likely each token was; they must be of the tokens that were sampled."""
    told = piece.get("completion_probabilities") or ()
    if [entry["id"] for entry in told] != piece["tokens"]:
        raise BrokenReply("llama.cpp gave logprobs for other tokens than it sampled")
    return [entry["logprob"] for entry in told]


def _has_called(request: Request) -> bool:
    """Whether tools have run since the user last spoke."""
    return bool(request.messages) and request.messages[-1].get("role") == "tool"
