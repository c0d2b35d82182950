"""What a model's own tokenizer and chat template make of the rows of an export: `stemma export --tokenizer FOLDER`.

A trainer puts messages through a chat template, and templates do as they like: SmolLM2's drops tool calls, Qwen 3's
drops the thoughts of earlier turns and adds an empty `<think>` that nobody sampled, many refuse a system message. Each
row is therefore rendered as a trainer would, and the report counts what does not come out of the template and what
comes in with it. Without a chat template beside the tokenizer, tokens are counted over the turns as Hermes text.

    reasoning dropped · content dropped · tool calls dropped      of trained replies
    system dropped · tool results dropped · tools dropped         of their context
    empty think added                                             blocks without a thought, which no reply has
    rows refused                                                  the template raises an error for them

With a `max_length`, a reply that ends beyond it is left out, counted as over-long, since a trainer would cut it.
Needs `pip install 'stemmata[tokens]'`. `tests/formats/test_template_check.py` proves it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stemma.errors import BadMessage, BadTrajectory
from stemma.formats.chat_template import compile_template
from stemma.formats.jsonl import to_json
from stemma.formats.openai import arguments_of, text_messages
from stemma.formats.tokenizer import open_tokenizer, settings_beside, special_tokens, template_beside, tokenizer_file
from stemma.formats.training import LeftOut, TrainingRow

_EMPTY_THINK = re.compile(r"<think>\s*</think>")


class TemplateInspector:
    """Renders and counts rows, one at a time."""

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
        """What the template did to all rows counted so far; None if there is no template."""
        return None if self._template is None else {"rows": self._found["rows"], **self._found}

    def refuse(self, row: TrainingRow) -> None:
        """Raise `LeftOut` for a row that is longer than `max_length`."""
        if self._max_length is None:
            return
        length = self._length(row, self._text(row))
        if length > self._max_length:
            raise LeftOut("over-long", f"{length:,} tokens, of which {length - self._max_length:,} would be cut")

    def count(self, row: TrainingRow) -> int:
        """How many tokens a row has; what the template drops or adds is noted."""
        text = self._text(row)
        if self._template is not None:
            self._found["rows"] += 1
            self._found.update(_changes(row, text) if text is not None else ["rows refused"])
        return self._length(row, text)

    def _text(self, row: TrainingRow) -> str | None:
        """The row as the template writes it; None if there is no template, or if it refuses the row."""
        if self._template is None:
            return None
        try:
            text = self._template.render(
                messages=_rendered_messages(row), tools=row.tools or None, add_generation_prompt=False, **self._special
            )
        except Exception:  # noqa: BLE001  a stranger's program may raise anything; so do messages that none takes
            return None
        return str(text)

    def _length(self, row: TrainingRow, text: str | None) -> int:
        texts = _bare_texts(row) if text is None else [text]
        clean = [one.encode("utf-8", "replace").decode() for one in texts]
        return sum(len(found.ids) for found in self._tokenizer.encode_batch_fast(clean, add_special_tokens=False))


def _bare_texts(row: TrainingRow) -> list[str]:
    """The row as Hermes turns; as JSON, if there is no turn for one of its messages."""
    try:
        return [turn["value"] for turn in row.turns()]
    except (BadMessage, BadTrajectory):
        return [to_json(message) for message in row.messages]


def _rendered_messages(row: TrainingRow) -> list[dict[str, Any]]:
    """Messages as trainers hand them to a template: arguments are objects."""
    messages = text_messages(row)
    for at, message in enumerate(messages):
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = arguments_of(call, at)
    return messages


def _changes(row: TrainingRow, text: str) -> Iterator[str]:
    """What is in a row and not in its text, message by message in their order, and what only the text has."""
    trained, at = set(row.trained), 0
    if row.tools and not all(_in(text, _tool_name(tool)) for tool in row.tools):
        yield "tools dropped"
    for number, message in enumerate(_rendered_messages(row)):
        if message["role"] == "assistant" and number not in trained:
            continue
        for kind, piece in _pieces(message):
            found = _find(text, piece, at)
            if found < 0:
                yield f"{kind} dropped"
            else:
                at = found
    for _ in range(len(_EMPTY_THINK.findall(text)) - sum(len(_EMPTY_THINK.findall(one)) for one in _own_texts(row))):
        yield "empty think added"


def _pieces(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    role = message["role"]
    if role == "assistant":
        yield "reasoning", message.get("reasoning_content", "")
        yield "content", message["content"]
        for call in message.get("tool_calls", []):
            yield "tool calls", call["function"]["name"]
            for text in _leaves(call["function"]["arguments"]):
                yield "tool calls", text
    elif role == "tool":
        yield "tool results", message["content"]
    elif role == "system":
        yield "system", message["content"]
    else:
        yield "user", message["content"]


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


def _in(text: str, piece: str) -> bool:
    return _find(text, piece, 0) >= 0


def _tool_name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function") or tool
    return str(function.get("name", ""))


def _own_texts(row: TrainingRow) -> Iterator[str]:
    for message in row.messages:
        yield from _leaves(message)
