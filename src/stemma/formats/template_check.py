"""What a model's own tokenizer and chat template make of the rows of an export: `stemma export --tokenizer FOLDER`.

A trainer puts messages through a chat template, and templates do as they like: SmolLM2's drops tool calls, Qwen 3's
drops the thoughts of earlier turns and adds an empty `<think>` that nobody sampled, many refuse a system message. Each
row is therefore rendered as it was written, as a trainer would, and the report counts what does not come out of the
template and what comes in with it. Without a chat template beside the tokenizer, the texts of the row are counted.

    reasoning dropped · content dropped · tool calls dropped · tool results dropped · system dropped · user dropped
    tools dropped          one of the tools offered is not named
    empty think added      blocks without a thought, which the row does not have
    rows refused           the template raises an error for them

With a `max_length`, a reply that ends beyond it is left out, counted as over-long, since a trainer would cut it.
Needs `pip install 'stemmata[tokens]'`. `tests/formats/test_template_check.py` proves it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stemma.formats.chat_template import compile_template, template_error
from stemma.formats.tokenizer import open_tokenizer, settings_beside, special_tokens, template_beside, tokenizer_file
from stemma.formats.training import LeftOut

Message = dict[str, Any]

_EMPTY_THINK = re.compile(r"<think>\s*</think>")
_ROLES = {"human": "user", "tool": "user", "observation": "user", "gpt": "assistant", "function_call": "assistant"}
"""The roles of turns whose value is text already; a tool's is then the user's, as trainers map them."""


_FAILURES = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What a template runs into that was not written for such a row."""


class TemplateInspector:
    """Renders and counts records, one at a time."""

    def __init__(self, path: Path, max_length: int | None = None) -> None:
        file = tokenizer_file(path)
        settings = settings_beside(file)
        source = template_beside(file, settings)
        self._tokenizer, self._max_length = open_tokenizer(path), max_length
        self._template = None if source is None else compile_template(source)
        self._special = special_tokens(settings)
        self._found: Counter[str] = Counter()

    @property
    def found(self) -> dict[str, int] | None:
        """What the template did to all records counted so far; None if there is no template."""
        return None if self._template is None else {"rows": self._found["rows"], **self._found}

    def refuse(self, record: Mapping[str, Any]) -> None:
        """Raise `LeftOut` for a record that is longer than `max_length`."""
        if self._max_length is None:
            return
        length = self._length(_messages(record), self._text(record))
        if length > self._max_length:
            raise LeftOut("over-long", f"{length:,} tokens, of which {length - self._max_length:,} would be cut")

    def count(self, record: Mapping[str, Any]) -> int:
        """How many tokens a record has; what the template drops or adds is noted."""
        text, messages = self._text(record), _messages(record)
        if self._template is not None:
            self._found["rows"] += 1
            self._found.update(_changes(messages, _tools(record), text) if text is not None else ["rows refused"])
        return self._length(messages, text)

    def _text(self, record: Mapping[str, Any]) -> str | None:
        """The record as the template writes it; None if there is no template, or if it refuses the record."""
        if self._template is None:
            return None
        about = {"messages": _messages(record), "tools": _tools(record) or None, "add_generation_prompt": False}
        try:
            return str(self._template.render(**about, **self._special))
        except (template_error(), *_FAILURES):
            return None

    def _length(self, messages: list[Message], text: str | None) -> int:
        texts = [piece for message in messages for _, piece in _pieces(message)] if text is None else [text]
        clean = [one.encode("utf-8", "replace").decode() for one in texts]
        return sum(len(found.ids) for found in self._tokenizer.encode_batch_fast(clean, add_special_tokens=False))


def _messages(record: Mapping[str, Any]) -> list[Message]:
    """The messages of a record as trainers hand them to a template: arguments are objects where they can be."""
    if "conversations" in record:
        turns = [_turn(turn) for turn in record["conversations"]]
        return [{"role": "system", "content": record["system"]}, *turns] if record.get("system") else turns
    found = record["messages"] if "messages" in record else [*record["prompt"], *record["completion"]]
    return [_with_objects(message) for message in (json.loads(found) if isinstance(found, str) else found)]


def _turn(turn: Mapping[str, str]) -> Message:
    if "role" in turn:
        return dict(turn)
    return {"role": _ROLES.get(turn["from"], turn["from"]), "content": turn["value"]}


def _with_objects(message: Message) -> Message:
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_with_object(call) for call in message["tool_calls"] if call]}


def _with_object(call: Message) -> Message:
    function = call.get("function") or {}
    try:
        arguments = json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError, RecursionError):  # an object already, or broken
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _tools(record: Mapping[str, Any]) -> list[Message]:
    tools = record.get("tools")
    return (json.loads(tools or "[]") if isinstance(tools, str) else tools) or []


def _changes(messages: list[Message], tools: list[Message], text: str) -> Iterator[str]:
    """What is in a record and not in its text, message by message in their order, and what only the text has."""
    at = 0
    if not all(_find(text, _tool_name(tool), 0) >= 0 for tool in tools):
        yield "tools dropped"
    for message in messages:
        for kind, piece in _pieces(message):
            found = _find(text, piece, at)
            if found < 0:
                yield f"{kind} dropped"
            else:
                at = found
    own = sum(len(_EMPTY_THINK.findall(one)) for message in messages for one in _leaves(message))
    for _ in range(len(_EMPTY_THINK.findall(text)) - own):
        yield "empty think added"


def _pieces(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a message, in the order in which a template writes them."""
    role = message["role"]
    if role == "assistant":
        yield from (("reasoning", text) for text in _leaves(message.get("reasoning_content")))
        yield from (("content", text) for text in _leaves(message.get("content")))
        for call in message.get("tool_calls") or ():
            yield from (("tool calls", text) for text in _leaves(call.get("function")))
    else:
        kind = {"tool": "tool results", "developer": "system"}.get(role, role)
        yield from ((kind, text) for text in _leaves(message.get("content")))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)


def _find(text: str, piece: str, start: int) -> int:
    """Where a piece stands in the text from `start` on, as it is or as JSON writes it; -1 if it does not."""
    piece = piece.strip()
    if not piece:
        return start
    for form in (piece, json.dumps(piece, ensure_ascii=False)[1:-1], json.dumps(piece)[1:-1]):
        if (found := text.find(form, start)) >= 0:
            return found
    return -1


def _tool_name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function") or tool
    return str(function.get("name", ""))
