"""A chat completion, read: whole replies with the calls that sampled them, or the error that it is.

A choice is whole if it has a message that says something (text, also an empty one; reasoning; a refusal; a tool call)
and a finish reason that is no accident. `content: null` with nothing beside it is no reply. `finish_reason: length` is
one: the tokens were sampled, and what was cut stays as it was cut. The message is normalised; null fields and empty
lists go, because endpoints refuse them when they come back. What the call keeps beside its own fields:

    extra["request_id"]       the endpoint's name for the request, from the header or the body
    extra["asked_model"]      the model that was asked for, where another one answered
    extra["raw"]              the content as it came, where normalising changed it
    extra["reasoning_field"]  where the reasoning stood
    extra["call_ids"]         ids that were made here, because the endpoint gave none or gave one twice
    extra["tokens"]           why token ids or logprobs that came are not kept
    extra["usage"]            why a usage that came is not kept
    extra["logprobs"]         the logprobs as they came, where no ids go with them or `top_logprobs` > 1 was asked for
    extra["stop_token"]       the token or text it stopped at, where the engine says so (vLLM, SGLang)
    extra["policy_version"]   which weights sampled it, where the engine says so (SGLang)
    extra["attempts"]         how often it was asked, if more than once
    extra["shares"]           the request whose usage and cost its first sample carries
    extra["redacted"]         True: it held a secret of ours, which was replaced (`redact.py`); it is not trained then

`tests/models/test_completion.py` proves it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stemma.core.call import Call
from stemma.core.message import REASONING_FIELDS
from stemma.errors import BadCall, BadMessage
from stemma.formats.api import normalise_reply
from stemma.models.calls import tidy_calls
from stemma.models.errors import BrokenReply, Refused
from stemma.models.failures import from_error_object
from stemma.models.prices import Prices, cost_of
from stemma.models.protocol import Reply, Request
from stemma.models.redact import redacted_reply
from stemma.models.tokens import Tokens, read_tokens
from stemma.redact import Redactor

ACCIDENTS = frozenset({"error", "abort", "aborted", "cancelled", "canceled"})
"""Finish reasons of replies that were cut off by something else than the model or its limits."""
MOST_TOKENS = 10**9
"""A count above this is a mistake, not a usage."""
_KEPT = ("system_fingerprint", "provider", "service_tier")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, and how the answer came."""

    model: str
    request: Request
    params: dict[str, Any]
    started: float
    seconds: float
    attempt: int = 1
    headers: Mapping[str, str] = {}
    prices: Prices | None = None


def read_completion(payload: Any, asked: Asked, redactor: Redactor) -> list[Reply]:
    """Every choice, in order, each a whole reply without secrets of ours; or a `ModelError`."""
    problem = ""
    try:
        choices = _choices(payload)
        usage, doubt = read_usage(redactor.value(payload.get("usage")))
        read = [_Reading(payload, choice, asked, usage, doubt, i).reply() for i, choice in enumerate(choices)]
        return [redacted_reply(reply, redactor) for reply in read]
    except (BadMessage, BadCall) as trouble:
        problem = str(trouble)
    except RecursionError:
        problem = "it is nested too deep"
    raise BrokenReply(f"the reply cannot be kept: {problem}", status=200)


def _choices(payload: Any) -> list[dict[str, Any]]:
    if not isinstance(payload, dict):
        raise BrokenReply("the reply is no object", status=200, body=repr(payload))
    choices = payload.get("choices")
    if payload.get("error") and not choices:
        raise from_error_object(payload["error"], repr(payload))
    if not isinstance(choices, list) or not choices:
        raise BrokenReply("the reply has no choices", status=200, body=repr(payload))
    if not all(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in choices):
        raise BrokenReply("a choice has no message", status=200, body=repr(payload))
    return choices


def read_usage(usage: Any) -> tuple[dict[str, Any], str | None]:
    """The usage, or none of it and why.

    >>> read_usage({"prompt_tokens": 7, "completion_tokens": -5})
    ({}, 'completion_tokens is -5')
    """
    if not isinstance(usage, dict):
        return {}, None if usage is None else "it is no object"
    for key, count in usage.items():
        if key.endswith("_tokens") and count is not None and not _is_count(count):
            return {}, f"{key} is {count!r:.40}"
    return usage, None


def _is_count(count: Any) -> bool:
    return type(count) is int and 0 <= count <= MOST_TOKENS


class _Reading:
    """One choice being read."""

    def __init__(
        self,
        payload: dict[str, Any],
        choice: dict[str, Any],
        asked: Asked,
        usage: dict[str, Any],
        doubt: str | None,
        place: int,
    ) -> None:
        self.payload, self.choice, self.asked = payload, choice, asked
        self.usage, self.place, self.alone = usage, place, len(payload["choices"]) == 1
        self.extra: dict[str, Any] = {"usage": doubt} if doubt else {}

    def reply(self) -> Reply:
        finish = self._finish()
        message = self._message(finish)
        tokens = read_tokens(self.payload, self.choice, self.usage, alone=self.alone)
        self._note_tokens(tokens)
        return Reply(message=message, call=self._call(finish, tokens))

    def _finish(self) -> str | None:
        finish = self.choice.get("finish_reason")
        if not isinstance(finish, str) or not finish:
            return None
        if finish in ACCIDENTS:
            raise BrokenReply(f"the endpoint cut the reply off: finish_reason is {finish!r}", status=200)
        return finish

    def _message(self, finish: str | None) -> dict[str, Any]:
        came = {key: value for key, value in self.choice["message"].items() if value is not None and value != []}
        fields = {**came, "role": "assistant", "content": came.get("content")}
        if "tool_calls" in came:
            fields["tool_calls"] = self._calls(came["tool_calls"])
        if fields.keys() == {"role", "content"} and fields["content"] is None:
            self._refuse_nothing(finish)
        message = normalise_reply(fields)
        if message["content"] != fields["content"]:
            self.extra["raw"] = fields["content"]
        if found := [field for field in REASONING_FIELDS if field in came]:
            self.extra["reasoning_field"] = found[0]
        return {"role": "assistant", "content": message.pop("content"), **message}

    def _refuse_nothing(self, finish: str | None) -> None:
        if finish == "content_filter":
            raise Refused("the endpoint's content filter left nothing of the reply", status=200)
        raise BrokenReply("the reply says nothing: no content, no reasoning, no tool call", status=200)

    def _calls(self, came: Any) -> list[dict[str, Any]]:
        messages = self.asked.request.messages
        whole = isinstance(came, list) and all(isinstance(c, dict) and c.get("id") for c in came)
        taken = () if whole else _ids_in(messages)  # only a made id could clash
        calls, made = tidy_calls(came, position=len(messages), taken=taken)
        if made:
            self.extra["call_ids"] = made
        return calls

    def _note_tokens(self, tokens: Tokens) -> None:
        if tokens.why:
            self.extra["tokens"] = tokens.why
        logprobs = self.choice.get("logprobs")
        entries = logprobs.get("content") if isinstance(logprobs, dict) else None
        if not isinstance(entries, list) or tokens.why:
            return
        top = self.asked.params.get("top_logprobs")
        if entries and (tokens.sampled_ids is None or (type(top) is int and top > 1)):
            self.extra["logprobs"] = entries

    def _call(self, finish: str | None, tokens: Tokens) -> Call:
        asked, first = self.asked, self.place == 0
        return Call(
            model=self._model(),
            id=self._id(),
            finish_reason=finish,
            usage=self.usage if first else {},
            extra={**self._circumstances(), **self.extra},
            tools=asked.request.tools,
            params=asked.params,
            started=asked.started,
            seconds=asked.seconds,
            cost=cost_of(self.usage, asked.prices) if first else None,
            prompt_ids=tokens.prompt_ids,  # type: ignore[arg-type]  # packed on the way in
            sampled_ids=tokens.sampled_ids,  # type: ignore[arg-type]
            logprobs=tokens.logprobs,  # type: ignore[arg-type]
        )

    def _model(self) -> str:
        said = self.payload.get("model")
        return said if isinstance(said, str) and said else self.asked.model

    def _request_id(self) -> str | None:
        for said in (self.asked.headers.get("x-request-id"), self.payload.get("id")):
            if isinstance(said, str) and said:
                return said
        return None

    def _id(self) -> str | None:
        """Two samples of one request are two events, even if they say the same."""
        said = self.payload.get("id")
        name = said if isinstance(said, str) else ""
        return name or None if self.alone else f"{name}/{self.place}"

    def _policy_version(self) -> Any:
        meta = self.choice.get("meta_info")
        return _first(
            meta.get("weight_version") if isinstance(meta, dict) else None, self.payload.get("weight_version")
        )

    def _circumstances(self) -> dict[str, Any]:
        asked, request_id = self.asked, self._request_id()
        known = {
            "request_id": request_id,
            "asked_model": asked.model if asked.model != self._model() else None,
            "attempts": asked.attempt if asked.attempt > 1 else None,
            "shares": request_id if self.place else None,
            "stop_token": _first(self.choice.get("stop_reason"), self.choice.get("matched_stop")),
            "policy_version": self._policy_version(),
            **{key: self.payload[key] for key in _KEPT if isinstance(self.payload.get(key), str)},
        }
        return {key: value for key, value in known.items() if value is not None}


def _first(*said: Any) -> Any:
    """The first that is a number or a text that says something."""
    return next((one for one in said if type(one) is int or (isinstance(one, str) and one)), None)


def _ids_in(messages: list[dict[str, Any]]) -> set[str]:
    calls = (call for message in messages for call in message.get("tool_calls") or () if isinstance(call, dict))
    return {call["id"] for call in calls if isinstance(call.get("id"), str)}
