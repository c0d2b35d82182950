"""What an endpoint can do, found out by asking it: a handful of short questions, each of which costs a little.

    examination = await examine(OpenAIModel("m", "http://127.0.0.1:8000/v1"))
    for finding in examination.findings:
        print(finding.name, finding.answer, finding.detail)

`yes` was seen, `no` was refused or is missing in the answer, `unknown` could not be found out, for instance because a
model that was offered tools preferred to talk. A capability is the endpoint's together with the model's.
`tests/models/test_doctor.py` proves it against endpoints that can do all, some and none of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from stemma.models.errors import ModelError, Refused
from stemma.models.openai_api import OpenAIModel
from stemma.models.protocol import Delta, Reply, Request
from stemma.models.tokens import ASK

Verdict = Literal["yes", "no", "unknown"]
Probe = Callable[[], Awaitable[tuple[Verdict, str]]]
LIMITS: tuple[dict[str, Any], ...] = ({"max_tokens": 200}, {"max_completion_tokens": 200}, {})
"""Ways to keep an answer short; each endpoint knows its own."""
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Finding(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    answer: Verdict
    detail: str = ""


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found out."""

    model: str
    findings: list[Finding]
    models: list[str] = []
    """What the endpoint says it serves."""
    context_window: int | None = None
    """How many tokens fit, where the endpoint says it."""

    def __getitem__(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)


async def examine(model: OpenAIModel, *, seconds: float = 60.0) -> Examination:
    """Ask `model` what it can do; each question may take so many seconds, and no longer than the model's deadlines."""
    listed, cards = await _listed(model)
    answers, limit = await _answers(model)
    asking = _Asking(model, limit)
    probes = asking.probes()
    if answers.answer == "yes":
        # One by one: a small server would answer them late if it had them all at once.
        found = [await _found(name, probe, seconds) for name, probe in probes.items()]
        found.append(asking.reasoning())
    else:
        found = [Finding(name, "unknown", "it does not answer") for name in (*probes, "reasoning")]
    card = next((card for card in cards if card.get("id") == model.name), {})
    names = [str(card["id"]) for card in cards if "id" in card]
    findings = [listed, answers, *found]
    return Examination(model=model.name, findings=findings, models=names, context_window=_window(card))


async def _listed(model: OpenAIModel) -> tuple[Finding, list[dict[str, Any]]]:
    try:
        said = await model.get("models")
    except ModelError as problem:
        return Finding("models", _verdict(problem), str(problem)), []
    data = said.get("data") if isinstance(said, dict) else None
    cards = [card for card in data or () if isinstance(card, dict)] if isinstance(data, list | None) else []
    if not cards:
        return Finding("models", "no", "the list is empty"), []
    known = any(card.get("id") == model.name for card in cards)
    return Finding(
        "models", "yes", f"{len(cards)} listed, {model.name} {'among' if known else 'not among'} them"
    ), cards


async def _answers(model: OpenAIModel) -> tuple[Finding, dict[str, Any]]:
    finding = Finding("chat", "unknown")
    for limit in LIMITS:
        try:
            reply = await model.reply(_question("Answer with one word: what colour is the sky?", limit))
        except Refused as problem:
            finding = Finding("chat", "no", str(problem))
        except ModelError as problem:
            return Finding("chat", "unknown", str(problem)), limit
        else:
            return Finding("chat", "yes", f"{reply.call.model} in {reply.call.seconds:.1f} s"), limit
    return finding, {}


async def _found(name: str, probe: Probe, seconds: float) -> Finding:
    try:
        async with asyncio.timeout(seconds):
            answer, detail = await probe()
    except ModelError as problem:
        return Finding(name, _verdict(problem), str(problem))
    except TimeoutError:
        return Finding(name, "unknown", f"no answer within {seconds:g} s")
    return Finding(name, answer, detail)


def _verdict(problem: ModelError) -> Verdict:
    return "no" if isinstance(problem, Refused) else "unknown"


class _Asking:
    """The questions, and the replies they got."""

    def __init__(self, model: OpenAIModel, limit: dict[str, Any]) -> None:
        self._model, self._limit = model, limit
        self._replies: list[Reply] = []

    def probes(self) -> dict[str, Probe]:
        return {
            "streaming": self._streaming,
            "tools": self._tools,
            "parallel tool calls": self._parallel,
            "logprobs": self._logprobs,
            "token ids": self._token_ids,
            "n samples": self._samples,
        }

    async def _reply(self, text: str, tools: list[dict[str, Any]] | None = None, **params: Any) -> Reply:
        reply = await self._model.reply(_question(text, {**self._limit, **params}, tools))
        self._replies.append(reply)
        return reply

    async def _streaming(self) -> tuple[Verdict, str]:
        shown: list[Delta] = []
        reply = await self._model.reply(_question("Count from one to five.", self._limit), shown.append)
        self._replies.append(reply)
        pieces = sum(delta.kind != "again" for delta in shown)
        if pieces == 0:
            return "no", "the reply came in one piece"
        return "yes", f"{pieces} pieces, {'with' if reply.call.usage else 'without'} usage"

    async def _tools(self) -> tuple[Verdict, str]:
        reply = await self._reply("What is the weather in Oslo? Use the tool.", [TOOL])
        calls = reply.message.get("tool_calls") or []
        if not calls:
            return "unknown", "they are taken, but the model answered without calling one"
        return "yes", "ids were missing or repeated" if "call_ids" in reply.call.extra else ""

    async def _parallel(self) -> tuple[Verdict, str]:
        text = "What is the weather in Oslo, and what in Rome? Call the tool for both cities at once."
        reply = await self._reply(text, [TOOL])
        calls = reply.message.get("tool_calls") or []
        return ("yes", f"{len(calls)} at once") if len(calls) > 1 else ("unknown", f"the model made {len(calls)}")

    async def _logprobs(self) -> tuple[Verdict, str]:
        reply = await self._reply("Answer with one word: what colour is grass?", logprobs=True)
        given = reply.call.logprobs is not None or "logprobs" in reply.call.extra
        if given:
            return "yes", ""
        return "no", str(reply.call.extra.get("tokens", "asked for, and not in the answer"))

    async def _token_ids(self) -> tuple[Verdict, str]:
        doubts = []
        for engine, params in ASK.items():
            try:
                reply = await self._reply("Answer with one word: what colour is snow?", **params)
            except Refused as problem:
                doubts.append(f"{engine}: {problem}")
                continue
            if reply.call.sampled_ids is not None:
                return "yes", f"as {engine} gives them, {'with' if reply.call.prompt_ids else 'without'} the prompt's"
            doubts.append(f"{engine}: {reply.call.extra.get('tokens', 'none in the answer')}")
        return "no", "; ".join(doubts)

    async def _samples(self) -> tuple[Verdict, str]:
        replies = await self._model.samples(_question("Name a colour.", self._limit), 2)
        self._replies += replies
        together = any("shares" in reply.call.extra for reply in replies)
        return ("yes", "in one request") if together else ("no", "asked one by one in its place")

    def reasoning(self) -> Finding:
        """Where reasoning stood in the replies to all the questions."""
        fields = {str(reply.call.extra.get("reasoning_field", "")) for reply in self._replies} - {""}
        if fields:
            return Finding("reasoning", "yes", f"in {', '.join(sorted(fields))}")
        if any("reasoning" in reply.message for reply in self._replies):
            return Finding("reasoning", "yes", "in the text, between tags")
        return Finding("reasoning", "unknown", "none was seen")


def _question(text: str, params: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> Request:
    return Request(messages=[{"role": "user", "content": text}], tools=tools, params=params)


def _window(card: dict[str, Any]) -> int | None:
    """Each server family has its own name for it."""
    meta = card.get("meta") if isinstance(card.get("meta"), dict) else {}
    said = [
        card.get("max_model_len"),
        card.get("context_length"),
        card.get("context_window"),
        (meta or {}).get("n_ctx"),
    ]
    return next((size for size in said if type(size) is int and size > 0), None)
