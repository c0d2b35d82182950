"""API messages as any SDK or server gives them: one place for reasoning, one way to read content as text.

`normalise_reply` is for the moment a model's reply is received. Wherever the provider has put the reasoning, it ends
in one `reasoning` string, and is not in `content` any more:

    reasoning · reasoning_content · thinking · reasoning_details[].summary|thinking|content|text · `thinking` parts of
    a content list · <think> <thinking> <thought> <reasoning> <REASONING_SCRATCHPAD> in the text, in any case

Parts are joined by a blank line, and one that an earlier part already says in full is skipped: most providers say
the same thing in two fields. `reasoning_details` stays beside it, since its signatures must go back to the provider.
Every other field stays as it came; tool-call arguments stay the string that was received, byte for byte.
The input is not changed. `tests/formats/test_api.py` proves it.

Tags in the text: a closed pair anywhere; a tag that begins a line and is never closed, because the reply was cut;
and what stands before a lone `</think>`, because Qwen-like templates open the block in the prompt. A tag that is
quoted in backticks is only talked about.

    >>> normalise_reply({"role": "assistant", "content": "<think>\\nIs 7 prime? Yes.\\n</think>\\n\\n7"})
    {'role': 'assistant', 'content': '7', 'reasoning': 'Is 7 prime? Yes.'}
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stemma.core.canonical import plain
from stemma.core.message import REASONING_FIELDS
from stemma.errors import BadMessage

_TEXT_KEYS = ("summary", "thinking", "content", "text")
_THINKING = ("thinking", "redacted_thinking", "reasoning")
MEDIA_PARTS = {
    "image": "[image]",
    "image_url": "[image]",
    "input_image": "[image]",
    "audio": "[audio]",
    "input_audio": "[audio]",
    "video": "[video]",
    "video_url": "[video]",
    "file": "[file]",
    "input_file": "[file]",
}
"""Types of content parts that are not text, and what `text_of` writes for them."""
_TAGS = "think|thinking|thought|reasoning|reasoning_scratchpad"
_TAG = re.compile(rf"<(/?)({_TAGS})>", re.IGNORECASE)
_CUT = re.compile(rf"^[^\S\n]*(<(?:{_TAGS})>)", re.IGNORECASE | re.MULTILINE)

_Span = tuple[int, int, int, int]
"""Where a thought lies in a text, with its tags and without: outer start, start, end, outer end."""


def normalise_reply(message: Any) -> dict[str, Any]:
    """A reply as stemma keeps it: a fresh dict with all its reasoning in `reasoning`."""
    reply = plain(message, "reply")
    if type(reply) is not dict:
        raise BadMessage(f"a reply is a message dict or an SDK's object, not {type(message).__name__}: {message!r:.80}")
    said = structured_reasoning(reply)
    content, thoughts = _without_thoughts(reply.get("content"), opened_in_prompt=not said)
    if "content" in reply:
        reply["content"] = content
    for field in REASONING_FIELDS:
        if field != "reasoning_details":
            reply.pop(field, None)
    if reasoning := join_reasoning([*said, *thoughts]):
        reply["reasoning"] = reasoning
    return reply if "role" in reply else {"role": "assistant", **reply}


def structured_reasoning(message: Mapping[str, Any]) -> list[str]:
    """Every piece of reasoning that stands in a field or a content part of its own."""
    pieces = [text for field in REASONING_FIELDS if field in message for text in texts_in(message[field])]
    content = message.get("content")
    if isinstance(content, list):
        pieces += [text for part in content if _is_thinking(part) for text in texts_in(part)]
    return pieces


def join_reasoning(pieces: Iterable[str]) -> str:
    """One text out of the pieces; what an earlier piece says in full is not said again."""
    kept: list[str] = []
    for piece in pieces:
        if not any(piece in earlier for earlier in kept):
            kept.append(piece)
    return "\n\n".join(kept)


def texts_in(value: Any) -> list[str]:
    """The texts of a reasoning field or part that are not blank, whichever way a provider nests them."""
    if isinstance(value, str):
        return [value] if value and not value.isspace() else []
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    if isinstance(value, Mapping):
        return next((found for key in _TEXT_KEYS if (found := texts_in(value.get(key)))), [])
    return []


def _is_thinking(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _THINKING


def _without_thoughts(content: Any, *, opened_in_prompt: bool) -> tuple[Any, list[str]]:
    """The content without its reasoning, and the reasoning that stood inside its text."""
    if isinstance(content, str):
        return _split_tags(content, opened_in_prompt)
    if not isinstance(content, list):
        return content, []
    parts: list[Any] = []
    thoughts: list[str] = []
    for part in content:
        if _is_thinking(part) and part.get("type") != "redacted_thinking":  # whose data must go back to the provider
            continue
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            text, more = _split_tags(part["text"], opened_in_prompt and not parts)
            part = {**part, "text": text}
            thoughts += more
        parts.append(part)
    return _as_text_if_plain(parts), thoughts


def _as_text_if_plain(parts: list[Any]) -> Any:
    """Only what thinking had turned into a list becomes a string again; a part with more to it stays."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}:
        return parts[0]["text"]
    return parts


def _split_tags(text: str, opened_in_prompt: bool) -> tuple[str, list[str]]:
    spans = _thought_spans(text, opened_in_prompt) if "<" in text else []
    if not spans:
        return text, []
    kept, at = [], 0
    for outer_start, _, _, outer_end in spans:
        kept.append(text[at:outer_start])
        at = outer_end
    thoughts = [text[start:end].strip() for _, start, end, _ in spans]
    return "".join([*kept, text[at:]]).strip(), [thought for thought in thoughts if thought]


def _thought_spans(text: str, opened_in_prompt: bool) -> list[_Span]:
    spans = _closed_spans(text, opened_in_prompt)
    after = spans[-1][3] if spans else 0
    if cut := _CUT.search(text[after:]):
        spans.append((after + cut.start(1), after + cut.end(1), len(text), len(text)))
    return spans


def _closed_spans(text: str, opened_in_prompt: bool) -> list[_Span]:
    tags = [tag for tag in _TAG.finditer(text) if not _quoted(text, tag)]
    last_close = {tag[2].lower(): tag.start() for tag in tags if tag[1]}
    spans: list[_Span] = []
    opened: re.Match[str] | None = None
    for tag in tags:
        name = tag[2].lower()
        if opened is not None:
            if tag[1] and name == opened[2].lower():
                spans.append((opened.start(), opened.end(), tag.start(), tag.end()))
                opened = None
        elif not tag[1]:
            opened = tag if last_close.get(name, -1) > tag.start() else None
        elif opened_in_prompt and tag is tags[0] and name == "think":
            spans.append((0, 0, tag.start(), tag.end()))
    return spans


def _quoted(text: str, tag: re.Match[str]) -> bool:
    start, end = tag.span()
    return start > 0 and text[start - 1] == "`" and text.startswith("`", end)


def text_of(content: Any) -> str:
    """Content as one string: parts on lines of their own, as vLLM and llama.cpp join them; an image is `[image]`."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content if not _is_thinking(part))
    if isinstance(content, Mapping) and content.get("_multimodal") is True and isinstance(content.get("content"), list):
        return _multimodal_text(content)
    return json.dumps(content, ensure_ascii=False, default=str)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        if placeholder := MEDIA_PARTS.get(str(part.get("type"))):
            return placeholder
        for key in ("text", "refusal"):
            if isinstance(part.get(key), str):
                return str(part[key])
    return json.dumps(part, ensure_ascii=False, default=str)


def _multimodal_text(content: Mapping[str, Any]) -> str:
    """Hermes' own envelope for a tool result with pictures."""
    if summary := content.get("text_summary"):
        return text_of(summary)
    parts = [part for part in content["content"] if isinstance(part, Mapping)]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return "\n".join(texts) or "[multimodal tool result]"
