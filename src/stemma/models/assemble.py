"""A streamed reply, put together into what the endpoint would have said at once.

Pieces are collected in lists and joined once, so the time is linear however small they are. Text is appended, token
ids and logprobs are extended, anything else keeps its last value; fields we do not know are treated by the same rule.
Nothing is repaired: arguments end as the string that was received. The result has the shape of a reply that was not
streamed, so that one reader (`completion.py`) decides what is whole. `tests/models/test_assemble.py` proves it.
"""

from typing import Any

from stemma.core.message import REASONING_FIELDS
from stemma.formats.api import structured_reasoning
from stemma.models.calls import CallPieces
from stemma.models.errors import MOST_BODY, BrokenReply
from stemma.models.failures import from_error_object
from stemma.models.jsontext import read_json
from stemma.models.protocol import Delta, OnDelta

_EXTENDED = ("token_ids", "response_token_ids")


class Assembly:
    """One streamed completion, with all its choices."""

    def __init__(self, on_delta: OnDelta | None = None) -> None:
        self._on_delta = on_delta
        self._top: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}

    def add(self, event: bytes) -> None:
        """Take the data of one event."""
        chunk = read_json(event, "an event of the stream")
        if not isinstance(chunk, dict):
            raise BrokenReply("an event of the stream is no object", status=200, body=_shown(event))
        if chunk.get("error"):
            raise from_error_object(chunk["error"], _shown(event))
        choices = chunk.pop("choices", None) or []
        if not isinstance(choices, list):
            raise BrokenReply("the choices of an event are no list", status=200, body=_shown(event))
        for choice in choices:
            self._choice(choice).add(choice)
        self._top.update((key, value) for key, value in chunk.items() if value is not None)

    def _choice(self, choice: Any) -> "_Choice":
        index = choice.get("index", 0) if isinstance(choice, dict) else None
        if type(index) is not int:
            raise BrokenReply("a choice of the stream is no object with an index", status=200)
        if index not in self._choices:
            # Eyes follow one reply, not several at once.
            self._choices[index] = _Choice(self._on_delta if not self._choices else None)
        return self._choices[index]

    def payload(self) -> dict[str, Any]:
        """The completion as it would have come in one piece."""
        if any(not choice.finished for choice in self._choices.values()):
            raise BrokenReply("the stream ended without a finish reason", status=200)
        choices = [{"index": index, **self._choices[index].whole()} for index in sorted(self._choices)]
        return {**self._top, "choices": choices}


class _Choice:
    """The pieces of one choice."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._fields: dict[str, Any] = {}
        self._extended: dict[str, list[Any]] = {}
        self._logprobs: dict[str, list[Any]] = {}
        self._message: dict[str, list[Any]] = {}
        self._details: dict[str, dict[str, Any]] = {}
        self._calls = CallPieces()

    def add(self, choice: dict[str, Any]) -> None:
        for key, value in choice.items():
            if value is None or key == "index":
                continue
            if key == "delta" or (key == "message" and not self._begun):  # a summary at the end says it all again
                self._add_delta(value)
            elif key in _EXTENDED and isinstance(value, list):
                self._extended.setdefault(key, []).extend(value)
            elif key == "logprobs" and isinstance(value, dict):
                self._add_logprobs(value)
            else:
                self._fields[key] = value

    def _add_delta(self, delta: Any) -> None:
        if not isinstance(delta, dict):
            raise BrokenReply("a delta of the stream is no object", status=200)
        for key, value in delta.items():
            if value is None or key == "role":
                continue
            if key == "tool_calls":
                self._tell("tool", self._calls.add(value))
            elif key == "reasoning_details" and isinstance(value, list):
                self._add_details(value)
            else:
                self._add_field(key, value)

    def _add_field(self, key: str, value: Any) -> None:
        if key == "content" and isinstance(value, list):
            # Mistral streams parts: the thinking among them is told apart here, as text cannot tell it any more.
            thinking = "".join(structured_reasoning({"content": value}))
            self._message.setdefault("reasoning_content", []).append(thinking)
            value = "".join(part["text"] for part in value if isinstance(part, dict) and _is_text(part))
        self._message.setdefault(key, []).append(value)
        if self._on_delta is not None and isinstance(value, str):
            self._tell("text" if key == "content" else "reasoning" if key in REASONING_FIELDS else None, value)

    def _add_details(self, details: list[Any]) -> None:
        """Reasoning of OpenRouter: parts by index, their texts in pieces, their signatures whole."""
        for part in details:
            if not isinstance(part, dict):
                continue
            kept = self._details.setdefault(f"{part.get('index')} {part.get('type')}", {})
            for key, value in part.items():
                pieces = kept.get(key)
                if key in ("text", "summary", "data") and isinstance(value, str):
                    kept[key] = pieces if isinstance(pieces, _Pieces) else _Pieces()
                    kept[key].append(value)
                elif value is not None and not isinstance(pieces, _Pieces):
                    kept[key] = value

    def _add_logprobs(self, logprobs: dict[str, Any]) -> None:
        for key, value in logprobs.items():
            if isinstance(value, list):
                self._logprobs.setdefault(key, []).extend(value)

    def _tell(self, kind: Any, text: str) -> None:
        if self._on_delta is not None and kind is not None and text:
            self._on_delta(Delta(kind, text))

    @property
    def _begun(self) -> bool:
        return bool(self._message or self._calls.whole())

    @property
    def finished(self) -> bool:
        return bool(self._fields.get("finish_reason"))

    def whole(self) -> dict[str, Any]:
        message = {"role": "assistant", **{key: _joined(pieces) for key, pieces in self._message.items()}}
        if self._details:
            message["reasoning_details"] = [_joined_fields(part) for part in self._details.values()]
        if calls := self._calls.whole():
            message["tool_calls"] = calls
        logprobs = {"logprobs": self._logprobs} if self._logprobs else {}
        return {**self._fields, **self._extended, **logprobs, "message": message}


def _shown(event: bytes) -> str:
    return event[:MOST_BODY].decode("utf-8", "replace")


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def _joined(pieces: list[Any]) -> Any:
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    if all(isinstance(piece, list) for piece in pieces):
        return [item for piece in pieces for item in piece]
    return pieces[-1]


class _Pieces(list[str]):
    """The pieces of one text."""


def _joined_fields(part: dict[str, Any]) -> dict[str, Any]:
    return {key: "".join(value) if isinstance(value, _Pieces) else value for key, value in part.items()}
