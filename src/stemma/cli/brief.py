"""What a message says, as text for people.

Messages come from anywhere: no shape of any field is taken for granted. `tests/cli/test_brief.py` gives it odd ones.
"""

import json
import re
from typing import Any, NamedTuple

from stemma.core.message import REASONING_FIELDS

_BLANKS = re.compile(r"[ \t\r\n]+")

STYLES = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}
"""The colour of each role."""

REASONING = tuple(field for field in REASONING_FIELDS if field != "reasoning_details")
"""The fields that hold it as text."""


class ToolCall(NamedTuple):
    """What an assistant asked for."""

    id: str
    name: str
    arguments: str
    """As the model wrote them."""
    rest: str
    """Whatever else the call has, as JSON on a line of its own; mostly nothing."""


def content_text(content: Any) -> str:
    """The content as text; parts that are no text are named in brackets."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return "" if content is None else value_text(content)


def whole_content(content: Any) -> str:
    """The content with nothing left out: parts that are no text, and texts with more to them, as JSON."""
    if isinstance(content, list):
        return "\n".join(_part_text(part) if _is_plain(part) else value_text(part) for part in content)
    return content_text(content)


def _is_plain(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and isinstance(part["text"], str)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return value_text(part)
    if isinstance(part.get("text"), str):
        text: str = part["text"]
        return text
    return f"[{value_text(part.get('type', 'part'))}]"


def value_text(value: Any) -> str:
    """A JSON value as text: strings as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tool_calls(fields: dict[str, Any]) -> list[ToolCall]:
    """The tool calls of a message."""
    calls = fields.get("tool_calls") or []
    return [_tool_call(call) for call in (calls if isinstance(calls, list) else [calls])]


def _tool_call(call: Any) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return ToolCall("", "?", value_text(call), "")
    known = {"id": call.get("id", ""), "name": function.get("name", "?"), "arguments": function.get("arguments", "")}
    texts = {name: value_text(value) for name, value in known.items()}
    return ToolCall(**texts, rest=_beside(call, function))


def _beside(call: dict[str, Any], function: dict[str, Any]) -> str:
    rest = {name: value for name, value in call.items() if name not in ("id", "type", "function")}
    rest |= {name: value for name, value in function.items() if name not in ("name", "arguments")}
    return "\n" + value_text(rest) if rest else ""


def reasoning(fields: dict[str, Any]) -> list[tuple[str, str]]:
    """The fields with reasoning, and it."""
    return [(name, value_text(fields[name])) for name in REASONING if fields.get(name)]


def one_line(fields: dict[str, Any], width: int) -> str:
    """What a message says and asks for, in one line of about `width` characters."""
    said = content_text(fields.get("content"))
    parts = [squeezed(said, width)] if said else []
    parts += [f"→ {call.name}({squeezed(call.arguments, width)})" for call in tool_calls(fields)]
    if not parts:
        parts = [f"(thinking) {squeezed(text, width)}" for _, text in reasoning(fields)]
    return " ".join(parts)


def squeezed(text: str, width: int) -> str:
    """`text` with each run of blanks as one; no more of it is looked at than can be of use."""
    if len(text) > 4 * width:
        text = text[: 4 * width] + "…"
    return _BLANKS.sub(" ", text).strip(" ")
