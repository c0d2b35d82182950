"""Preset `openai`: `{"messages": […], "tools": […]}`, as OpenAI's fine-tuning and most loaders of chat data take it.

    tools       as they were offered; the key is absent if none were
    assistant   `weight` 1 if the message is trained, 0 if it is context
    arguments   the string that was received, even if it is broken JSON: nothing here is parsed and written again
    reasoning   `reasoning_content`, where vLLM, SGLang and most chat templates look for it. OpenAI's own service knows
                no such field, but its models do not tell their reasoning either, so rows sampled from them have none.

A row ends with its last trained message. Fields that belong to a provider or to a call are not part of the format
and stay behind. A row is left out, with its reason, if a message has a role that the format does not know, or if a
message that is not the assistant's is to be trained.

Other presets begin with what is here: `lean_messages`; `text_messages`, for trainers that put text into a chat
template; and `raw_markers`, because a template writes tool results and arguments as bare text.
`tests/formats/test_presets_text.py` proves it.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from stemma.errors import BadRecord
from stemma.formats.api import join_reasoning, structured_reasoning, text_of
from stemma.formats.export import Preset, Written, compact_json
from stemma.formats.jsonl import from_json
from stemma.formats.markers import OWN, Finding, markers_in
from stemma.formats.training import LeftOut, TrainingRow

ROLES = ("system", "developer", "user", "assistant", "tool")
TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "thinking", "redacted_thinking", "reasoning")
"""The types of content parts that are text."""


DEVELOPER = "developer message written as system"
PROTOCOL = "sampled under the hermes tool protocol"
"""How the context of a row can differ from what the model saw because of its format."""


def openai_row(row: TrainingRow) -> list[Written]:
    """The row with a weight on each assistant message."""
    messages = lean_messages(row)
    trained = set(row.trained)
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            message["weight"] = int(at in trained)
    record = {"messages": messages, "tools": row.tools} if row.tools else {"messages": messages}
    return [Written(record, row.trained, protocol_difference(row))]


def protocol_difference(row: TrainingRow) -> tuple[str, ...]:
    """That the model saw tools as text, where this row has them in fields that a template writes in its own way."""
    hermes = row.tools and any(reply.call.extra.get("protocol") == "hermes" for reply in row.replies)
    return (PROTOCOL,) if hermes else ()


def text_differences(row: TrainingRow, last: int | None = None) -> tuple[str, ...]:
    """How `text_messages` and a template differ from what the model saw, up to the message `last`."""
    found = protocol_difference(row)
    messages = row.messages if last is None else row.messages[: last + 1]
    return (*found, DEVELOPER) if any(message.get("role") == "developer" for message in messages) else found


def lean_messages(row: TrainingRow) -> list[dict[str, Any]]:
    """The messages up to the last trained one, each with the keys it needs and no others."""
    messages = [_lean(message, at) for at, message in enumerate(row.messages[: row.trained[-1] + 1])]
    for at in row.trained:
        if messages[at]["role"] != "assistant":
            raise LeftOut("trained message of another role", f"message {at} is of the role {messages[at]['role']!r}")
    return messages


def _lean(message: Mapping[str, Any], at: int) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise LeftOut("unknown role", f"message {at} has the role {role!r}")
    lean = {"role": role, "content": _content(message)}
    if role == "assistant":
        if reasoning := join_reasoning(structured_reasoning(message)):
            lean["reasoning_content"] = reasoning
        if calls := [_call(call, at) for call in message.get("tool_calls") or [] if call]:
            lean["tool_calls"] = calls
    if role == "tool" and message.get("tool_call_id"):
        lean["tool_call_id"] = message["tool_call_id"]
    if message.get("name"):
        lean["name"] = message["name"]
    return lean


def _content(message: Mapping[str, Any]) -> Any:
    """Text, or parts as they came; null only where calls stand in its place, as the API has it."""
    content = message.get("content")
    if isinstance(content, list) and message.get("role") == "assistant":
        return text_of(content)  # thinking parts are reasoning, and have gone there
    if isinstance(content, str | list) or (content is None and message.get("tool_calls")):
        return content
    return text_of(content)


def _call(call: Any, at: int) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise LeftOut("tool call without a function", f"message {at} has the call {call!r:.80}")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = compact_json(arguments or {})
    kept = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {"id": call["id"], **kept} if call.get("id") else kept


def text_messages(row: TrainingRow) -> list[dict[str, Any]]:
    """Lean messages as text templates take them: content is text, calls can be parsed, results name their tool."""
    messages = lean_messages(row)
    _name_results(messages)
    for at, message in enumerate(messages):
        message["content"] = _text(message["content"], at)
        for call in message.get("tool_calls", []):
            arguments_of(call, at)
        if message["role"] == "developer":
            message["role"] = "system"
    return messages


def _name_results(messages: list[dict[str, Any]]) -> None:
    """Put on each result the name of its call: that with its id among the calls before it; without one, by position."""
    calls: list[dict[str, Any]] = []
    position = 0
    for message in messages:
        if message["role"] != "tool":
            calls, position = message.get("tool_calls", []), 0
            continue
        result_id = message.get("tool_call_id")
        answered = (
            [call for call in calls if call.get("id") == result_id] if result_id else calls[position : position + 1]
        )
        if answered:
            message["name"] = answered[0]["function"]["name"]
        position += 1


def _text(content: Any, at: int) -> str:
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type") not in TEXT_PARTS:
            raise LeftOut("not text", f"message {at} holds {part.get('type')!r}, which training on text cannot see")
    return text_of(content)


def arguments_of(call: dict[str, Any], at: int) -> dict[str, Any]:
    """The arguments of a lean call as an object, or `LeftOut`."""
    arguments = call["function"]["arguments"]
    try:
        value = from_json(arguments.encode("utf-8", "surrogatepass"))
        msgspec.json.encode(value)  # an escape in JSON text can hide a lone surrogate, on which tokenizers fail
    except UnicodeEncodeError as problem:
        raise LeftOut("lone surrogate", f"message {at}, in the arguments of a call: {problem}") from problem
    except BadRecord as problem:
        raise LeftOut("arguments are not an object", f"message {at}: {arguments:.80} {problem}") from problem
    if not isinstance(value, dict):
        raise LeftOut("arguments are not an object", f"message {at}: {arguments:.80}")
    return value


def raw_markers(record: Mapping[str, Any]) -> list[Finding]:
    """The control markers in a record whose messages and tools a chat template writes as bare text.

    In Hermes text these stand in JSON bodies, where markers are sealed; a template seals nothing, and a tokenizer
    makes of `<|im_end|>` in a file that was read, or in the name of a tool, the end of a turn.
    """
    messages = record["messages"] if "messages" in record else [*record["prompt"], *record["completion"]]
    found = [Finding(at, *one) for at, message in enumerate(messages) for one in _markers_of_message(message)]
    return found + markers_of_tools(record.get("tools"))


def _markers_of_message(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each marker with whose turn it is; in the model's own text some are structure and none."""
    speaker = {"user": "human", "assistant": "gpt", "tool": "tool"}.get(message["role"], "system")
    for field, value in message.items():
        of_model = speaker == "gpt" and field in ("content", "reasoning_content")
        for text in _texts(value):
            for marker in markers_in(text):
                if not (of_model and marker in OWN):
                    yield speaker, marker


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value; JSON text in it as what it stands for, too, as a template may write it so."""
    if isinstance(value, str):
        yield value
        if "\\" in value and value.lstrip()[:1] in ("{", "["):
            yield _parsed(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _parsed(arguments: str) -> str:
    try:
        return compact_json(json.loads(arguments))
    except (ValueError, RecursionError):
        return ""


def markers_of_tools(tools: Any) -> list[Finding]:
    """Those in the tools offered, which are a list or JSON text."""
    text = tools if isinstance(tools, str) else compact_json(tools or [])
    return [Finding(0, "system", marker) for marker in _markers_of_json(text)]


@lru_cache(maxsize=64)
def _markers_of_json(text: str) -> tuple[str, ...]:
    """Remembered: a run offers the same few sets of tools to all its conversations."""
    return tuple(markers_in(f"{text} {_parsed(text)}"))


OPENAI = Preset(name="openai", convert=openai_row, markers=raw_markers, parses_arguments=False)
