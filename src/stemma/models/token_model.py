"""Token in, token out: a model of llama.cpp that is sent the ids of its prompt and gives those it sampled.

It speaks the hermes tool protocol under a grammar, so that every reply is well-formed, and gives exact token ids and
logprobs: those of the model itself, before grammar and temperature. The prompt is put together from ids: no text can
forge a turn, and a later prompt extends the earlier one (`local_prompt`). `LocalModel` runs it in this process,
`LlamaServerModel` asks a server. What the call keeps of how its tokens were chosen (`core/sampler.py` reads it):

    extra["sampler"]      temperature, top_p, top_k, min_p and the penalties at work, as the engine says it used them
    extra["constraint"]   the grammar: its hash, and what `reply_grammar` was asked for beside the tools
    extra["forced"]       the tokens for which the grammar left one choice
    extra["cut"]          `thought`: the grammar cut the thought and nothing else; the answer or call is whole

A reply of which the grammar cut a part at its greatest length ends with `length`, as one cut by `max_tokens` does.
`tests/models/test_local.py` and `tests/models/test_llama_server.py` run both.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from hashlib import sha256
from typing import Any, Protocol

import msgspec

from stemma.core.call import Call, pack_ids, pack_logprobs
from stemma.models.errors import BrokenReply, Refused
from stemma.models.forced import walk
from stemma.models.grammar import reply_grammar
from stemma.models.hermes_protocol import as_text_messages, fresh_nonce, read_reply
from stemma.models.local_engine import Connection
from stemma.models.local_pieces import Pieces
from stemma.models.local_prompt import PromptWriter
from stemma.models.protocol import OnDelta, Reply, Request

_SAMPLING = {"temperature": 0.3, "max_tokens": 1024}
_SAMPLER = ("temperature", "top_p", "top_k", "min_p")
"""What is always kept of the sampler; of `_IF_NOT` what differs from these values, at which it does nothing."""
_IF_NOT = {
    "repeat_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "dry_multiplier": 0,
    "xtc_probability": 0,
    "dynatemp_range": 0,
    "mirostat": 0,
    "typical_p": 1,
    "top_n_sigma": -1,
    "logit_bias": [],
}


_TAKEN = ("grammar", "json_schema")
"""Parameters that would have no effect."""


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
        if taken := [name for name in _TAKEN if params.get(name)]:
            raise Refused(f"{taken[0]} cannot be set: the tool protocol has a grammar of its own")
        constraint = {"tight": self._tight, "answer_due": self._tight and _has_called(request)}
        grammar = reply_grammar(request.tools, **constraint)
        async with self._engine.connect() as engine:
            prompt = await self._writer.ids(engine, as_text_messages(request.messages, request.tools))
            started, clock = time.time(), time.monotonic()
            said = await _sample(engine, _body(prompt, params, grammar), on_delta)
            seconds = time.monotonic() - clock
        walked = walk(grammar, said.pieces, ended=said.stop == "eos")
        message = read_reply(said.text, fresh_nonce(request.messages))
        stands = as_text_messages([message], None)[-1]["content"]
        self._writer.remember(prompt, stands, said.without_end())
        used = {"prompt_tokens": len(prompt), "completion_tokens": len(said.ids)}
        call = Call(
            model=self.name,
            tools=request.tools,
            params=params,
            finish_reason="length" if walked.cuts else said.finish_reason(message),
            usage={**used, "total_tokens": len(prompt) + len(said.ids)},
            started=started,
            seconds=seconds,
            cost=self._cost,
            prompt_ids=pack_ids(prompt),
            sampled_ids=pack_ids(said.ids),
            logprobs=pack_logprobs(said.logprobs),
            extra={
                "protocol": "hermes",
                "sampler": {**_sampler(said.settings), "logprobs": "model"},
                "constraint": {"grammar": sha256(grammar.encode()).hexdigest(), **constraint},
                **({"forced": [list(run) for run in walked.forced]} if walked.forced else {}),
                **({"cut": "thought"} if walked.cuts and said.thought_ends(walked.cuts[-1]) else {}),
                **({"raw": said.text} if said.text != stands else {}),
            },
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


def _body(prompt: list[int], params: Mapping[str, Any], grammar: str) -> dict[str, Any]:
    """The question as llama.cpp takes it."""
    rest = {key: value for key, value in params.items() if key != "max_tokens"}
    fixed = {"prompt": prompt, "n_predict": params["max_tokens"], "grammar": grammar}
    return {**rest, **fixed, "n_probs": 1, "return_tokens": True, "cache_prompt": True}


def _sampler(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine says of how it sampled; its numbers were float32, so they are shortened to what was meant."""
    kept = {key: settings[key] for key in _SAMPLER if key in settings}
    kept |= {key: settings[key] for key, neutral in _IF_NOT.items() if settings.get(key, neutral) != neutral}
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in kept.items()}


class _Said(msgspec.Struct, frozen=True):
    """What was sampled."""

    text: str
    ids: list[int]
    logprobs: list[float]
    pieces: list[bytes]
    """The text of each token; of the one that ended the reply nothing."""
    stop: str
    """Why it ended: eos, or limit."""
    settings: dict[str, Any]
    """How the engine says it sampled."""

    def without_end(self) -> list[int]:
        """The ids of the text alone; the template writes the end of a turn itself."""
        return self.ids[:-1] if self.stop == "eos" else self.ids

    def thought_ends(self, place: int) -> bool:
        """Whether the thought ends after this many bytes, or later, and the reply went on to its own end."""
        return self.stop == "eos" and place <= self.text.encode("utf-8", "replace").find(b"</think>")

    def finish_reason(self, message: Mapping[str, Any]) -> str:
        if self.stop == "limit":
            return "length"
        return "tool_calls" if message.get("tool_calls") else "stop"


async def _sample(engine: Connection, body: dict[str, Any], on_delta: OnDelta | None) -> _Said:
    """One reply, whole; leaving early, as a cancelled task does, ends the work."""
    texts: list[str] = []
    ids: list[int] = []
    logprobs: list[float] = []
    pieces: list[bytes] = []
    settings: dict[str, Any] = {}
    shown, stop = Pieces(on_delta), None
    async with aclosing(engine.stream("/completion", body)) as stream:
        async for piece in stream:
            texts.append(piece["content"])
            ids += piece["tokens"]
            told = _told(piece)
            logprobs += [entry["logprob"] for entry in told]
            pieces += [bytes(entry["bytes"]) for entry in told]
            stop, settings = piece.get("stop_type"), piece.get("generation_settings") or settings
            shown.feed(piece["content"])
    shown.end()
    if stop is None:
        raise BrokenReply("llama.cpp ended its reply without saying why")
    return _Said("".join(texts), ids, logprobs, pieces, stop, settings)


def _told(piece: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is said of each token: its bytes, and how likely it was; they must be those that were sampled."""
    told = list(piece.get("completion_probabilities") or ())
    if [entry["id"] for entry in told] != piece["tokens"]:
        raise BrokenReply("llama.cpp gave logprobs for other tokens than it sampled")
    return told


def _has_called(request: Request) -> bool:
    """Whether tools have run since the user last spoke."""
    return bool(request.messages) and request.messages[-1].get("role") == "tool"
