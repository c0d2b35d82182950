"""Messages of any provider as plain OpenAI chat messages, and why a reply cannot be trained as text.

`chat_messages` maps what a chat message can say:

    Anthropic blocks   assistant: text → content, thinking → reasoning, tool_use → tool_calls (ids kept)
                       user: tool_result → tool messages, which stand before the rest of the user's message
    Responses items    message, output_text and input_text → content, reasoning → reasoning, function_call and
                       custom_tool_call → tool_calls, their outputs → tool messages (`call_id` is the id); an item may
                       be a message of its own, if it has a role, or stand in a content list

Several text blocks of an assistant are joined without a separator, as the API streams them; several thoughts by a
blank line. A reply is always exactly one assistant message. What cannot be mapped (images, refusals, redacted thinking,
blocks nobody knows) stays a content part, and a reply whose order a chat message cannot say, such as text after a tool
call, stays as it is.

`why_untrainable` names the reason why a reply must not be trained as text: what was sampled would be missing from what
is written, or be written as something else. It takes the recorded message or the mapped one. Arguments are no such
reason, because some formats carry them as the string that was received: for those that parse them there is
`broken_arguments`. `tests/formats/test_shapes.py` proves it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stemma.core.message import REASONING_FIELDS
from stemma.errors import BadRecord
from stemma.formats.api import MEDIA_PARTS, join_reasoning, structured_reasoning, text_of, texts_in
from stemma.formats.jsonl import from_json, to_json

Message = dict[str, Any]
Untrainable = tuple[str, str]
"""A reason, which is counted, and a detail, which explains one case."""

_KEY = re.compile(r'"\s*:')
MEDIA_FIELDS = ("audio", "images")
"""Fields of a message, beside its content, that hold what is not text."""
_TEXT = ("text", "output_text", "input_text")
_THOUGHT = ("thinking", "reasoning")
_CALL = ("tool_use", "function_call", "custom_tool_call")
_RESULT = ("tool_result", "function_call_output", "custom_tool_call_output")
_ITEM_FIELDS = {
    "reasoning": ("type", "summary", "content", "encrypted_content", "status", "id"),
    "function_call": ("type", "name", "arguments", "call_id", "status", "id"),
    "custom_tool_call": ("type", "name", "input", "call_id", "status", "id"),
    "function_call_output": ("type", "call_id", "output", "status", "id"),
    "custom_tool_call_output": ("type", "call_id", "output", "status", "id"),
}
"""The Responses items that can be messages of their own, with the fields that belong to the item."""


def chat_messages(messages: list[Message]) -> tuple[list[Message], Sequence[int]]:
    """The messages as plain chat messages, and for each of those the index of the message it came from.

    Where nothing needs mapping, the list itself is returned. No message that was given is changed.
    """
    if not any(map(_may_need_mapping, messages)):
        return messages, range(len(messages))
    mapped: list[Message] = []
    origins: list[int] = []
    for at, message in enumerate(messages):
        made = _mapped(message) if _may_need_mapping(message) else [message]
        mapped += made
        origins += [at] * len(made)
    return mapped, origins


def why_untrainable(message: Mapping[str, Any]) -> Untrainable | None:
    """The reason why an assistant message must not be trained as text, or None if it may be."""
    if refusal := message.get("refusal"):
        return "refusal", f"{refusal!r:.80}"
    if legacy := message.get("function_call"):
        return "function_call", f"{legacy!r:.80}"
    for field in MEDIA_FIELDS:
        if message.get(field):
            return "not text", f"it has {field!r}"
    content = message.get("content")
    if isinstance(content, list) or "type" in message:
        if why := _why_content(message):
            return why
        message = _mapped_reply(message)
    elif not isinstance(content, str | None):
        return "unknown content part", f"its content is of type {type(content).__name__}"
    return _why_calls(message.get("tool_calls")) or _why_hidden(message) or _why_empty(message)


def broken_arguments(message: Mapping[str, Any]) -> str | None:
    """The first tool call of a chat message whose arguments are not a JSON object; None if all are.

    One in which a key is there twice counts as none, for it cannot be parsed and written again. So does an empty
    string: a template would write `{}`, which nobody sampled.
    """
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and not _is_object(function.get("arguments")):
            return f"the call of {function.get('name')!r} has the arguments {function.get('arguments')!r:.80}"
    return None


def missing_arguments(message: Mapping[str, Any]) -> str | None:
    """The first tool call of a chat message whose arguments are neither text nor an object; None if all are."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and not isinstance(function.get("arguments"), str | dict):
            return f"the call of {function.get('name')!r} has the arguments {function.get('arguments')!r:.80}"
    return None


def _is_object(arguments: Any) -> bool:
    if not isinstance(arguments, str):
        return isinstance(arguments, dict)
    try:
        if type(from_json(arguments.encode("utf-8", "surrogatepass"))) is not dict:
            return False
    except BadRecord:
        return False
    return not _repeats_a_key(arguments)


def _repeats_a_key(text: str) -> bool:
    """Whether an object in some JSON has a key twice: read and written again, one of the two would be gone."""
    if len(_KEY.findall(text)) < 2:
        return False
    try:
        json.loads(text, object_pairs_hook=_refuse_repeated)
    except ValueError:
        return True
    return False


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _may_need_mapping(message: Mapping[str, Any]) -> bool:
    return isinstance(message.get("content"), list) or "type" in message


def _mapped(message: Message) -> list[Message]:
    role = message.get("role")
    if role == "assistant":
        return [message if _is_interleaved(_blocks(message)) else _mapped_reply(message)]
    if role in ("user", "tool") and any(_type(block) in _RESULT for block in _blocks(message)):
        return _results_and_rest(message)
    return [_mapped_prompt(message)]


def _type(block: Any) -> str | None:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else None


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    """The content blocks of a message, those of Responses `message` items among them; an item is a block itself."""
    if _type(message) == "reasoning":
        return [message]
    content = message.get("content")
    blocks = list(_flat(content)) if isinstance(content, list) else [content] if isinstance(content, str) else []
    return [*blocks, message] if _type(message) in _ITEM_FIELDS else blocks


def _without_item(message: Mapping[str, Any]) -> Message:
    left = ("type",) if _type(message) == "message" else _ITEM_FIELDS.get(_type(message) or "", ())
    return {key: value for key, value in message.items() if key not in left}


def _flat(blocks: list[Any]) -> Iterator[Any]:
    for block in blocks:
        if _type(block) == "message" and isinstance(block.get("content"), list):
            yield from _flat(block["content"])
        else:
            yield block


def _text(block: Any) -> str | None:
    """What a text block says; None for any other block."""
    if isinstance(block, str):
        return block
    if isinstance(block, dict) and (block.get("type") in _TEXT or "type" not in block):
        text = block.get("text")
        return text if isinstance(text, str) else None
    return None


def _thought(block: Any) -> str | None:
    """What a thinking block says; None for any other block, also for one whose text is withheld."""
    if _type(block) not in _THOUGHT:
        return None
    said = "\n\n".join(texts_in(block.get("content")) or texts_in(block))
    return said or (None if _is_withheld(block) else "")


def _is_withheld(block: Mapping[str, Any]) -> bool:
    return bool(block.get("encrypted_content")) or block.get("type") in ("redacted_thinking", "reasoning.encrypted")


# ── a reply ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _mapped_reply(message: Mapping[str, Any]) -> Message:
    mapped = _without_item(message)
    if not isinstance(message.get("content"), list) and _type(message) not in _ITEM_FIELDS:
        return mapped
    blocks = _blocks(message)
    thoughts = [thought for block in blocks if (thought := _thought(block))]
    rest = [block for block in blocks if _type(block) not in _CALL and _thought(block) is None]
    calls = _with_calls(message.get("tool_calls"), [_call(block) for block in blocks if _type(block) in _CALL])
    if thoughts:
        beside = [text for field in REASONING_FIELDS for text in texts_in(mapped.pop(field, None))]
        mapped["reasoning"] = join_reasoning([*beside, "\n\n".join(thoughts)])
    if calls:
        mapped["tool_calls"] = calls
    return {**mapped, "content": _joined(rest) if rest else None if calls else ""}


def _joined(rest: list[Any]) -> Any:
    """The text of the blocks, or parts where some are no text; neighbouring texts are one."""
    parts: list[Any] = []
    for block in rest:
        text = _text(block)
        if text is None:
            parts.append(block)
        elif parts and isinstance(parts[-1], str):
            parts[-1] += text
        else:
            parts.append(text)
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def _call(block: Mapping[str, Any]) -> Message:
    call_id = block.get("id") if _type(block) == "tool_use" else block.get("call_id") or block.get("id")
    if _type(block) == "custom_tool_call":
        call: Message = {"type": "custom", "custom": {"name": block.get("name"), "input": block.get("input")}}
    else:
        said = block.get("input") if _type(block) == "tool_use" else block.get("arguments")
        arguments = said if isinstance(said, str) else to_json(said)
        call = {"type": "function", "function": {"name": block.get("name"), "arguments": arguments}}
    return {"id": call_id, **call} if call_id else call


def _with_calls(known: Any, found: list[Message]) -> Any:
    """The calls of a message and those of its blocks; some libraries put the same call into both places."""
    if not found or (known and not isinstance(known, list)):
        return known
    ids = [call.get("id") for call in known or () if isinstance(call, dict)]
    return [*(known or ()), *(call for call in found if "id" not in call or call["id"] not in ids)]


def reply_in_order(message: Mapping[str, Any]) -> list[tuple[str, Any]] | None:
    """The blocks of a reply that `chat_messages` left as it is, because of their order; None for any other message.

    Each is a `thought` or `text` (a string), a `call` (a chat message's tool call) or a `part` that is neither.
    """
    blocks = _blocks(message)
    if not _is_interleaved(blocks):
        return None
    ordered = [_named(block) for block in blocks]
    ids = [said.get("id") for kind, said in ordered if kind == "call"]
    beside = message.get("tool_calls")
    more = [call for call in beside if not isinstance(call, dict) or call.get("id") not in ids] if beside else []
    return [*ordered, *(("call", call) for call in more)]


def _named(block: Any) -> tuple[str, Any]:
    if _type(block) in _CALL:
        return "call", _call(block)
    if (thought := _thought(block)) is not None:
        return "thought", thought
    text = _text(block)
    return ("part", block) if text is None else ("text", text)


# ── what others say ──────────────────────────────────────────────────────────────────────────────────────────────


def _results_and_rest(message: Message) -> list[Message]:
    blocks = _blocks(message)
    made = [_result(block) for block in blocks if _type(block) in _RESULT]
    rest = [block for block in blocks if _type(block) not in _RESULT]
    if rest:
        made.append(_mapped_prompt({**_without_item(message), "content": rest}))
    return made


def _result(block: Mapping[str, Any]) -> Message:
    if _type(block) == "tool_result":
        call_id, said = block.get("tool_use_id"), block.get("content")
    else:
        call_id, said = block.get("call_id"), block.get("output")
    made: Message = {"role": "tool", "content": _result_content(said)}
    if call_id:
        made["tool_call_id"] = call_id
    return made | ({"is_error": True} if block.get("is_error") else {})


def _result_content(said: Any) -> Any:
    if isinstance(said, list):
        parts = [_plain_part(part) for part in said]
        return text_of(parts) if all(_text(part) is not None for part in parts) else parts
    return said if isinstance(said, str) else text_of(said)


def _mapped_prompt(message: Message) -> Message:
    """A message that is not the model's, whose content stays as it is but for the names of text parts."""
    content = message.get("content")
    parts = [_plain_part(part) for part in _flat(content)] if isinstance(content, list) else content
    if parts == content and _type(message) != "message":
        return message
    return {**{key: value for key, value in message.items() if key != "type"}, "content": parts}


def _plain_part(part: Any) -> Any:
    if _type(part) in ("input_text", "output_text") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    return part


# ── why a reply is not trained ───────────────────────────────────────────────────────────────────────────────────


def _why_content(message: Mapping[str, Any]) -> Untrainable | None:
    blocks = _blocks(message)
    for block in blocks:
        if why := _why_block(block):
            return why
    if _is_interleaved(blocks):
        order = ", ".join(str(_type(block) or "text") for block in blocks)
        return "interleaved content", f"a chat message cannot say this order: {order:.80}"
    if not blocks and _type(message) not in (None, "message") and not message.get("tool_calls"):
        return "unknown content part", f"the message is of type {_type(message)!r}"
    return None


def _why_block(block: Any) -> Untrainable | None:
    kind = _type(block)
    if kind == "refusal":
        return "refusal", f"{block.get('refusal')!r:.80}"
    if kind in MEDIA_PARTS:
        return "not text", f"it holds {kind!r}"
    if kind in ("redacted_thinking", *_THOUGHT):
        return ("redacted thinking", f"it holds {kind!r} without its text") if _thought(block) is None else None
    if kind in _CALL or _text(block) is not None:
        return None
    return "unknown content part", f"it holds {kind!r}" if kind else f"it holds {block!r:.80}"


def _is_interleaved(blocks: list[Any]) -> bool:
    """Whether blocks stand in another order than thoughts, content, calls, which is all that a chat message has."""
    places = [
        0 if _type(block) in ("redacted_thinking", *_THOUGHT) else 2 if _type(block) in _CALL else 1
        for block in blocks
        if _text(block) != ""
    ]
    return places != sorted(places)


def _why_calls(calls: Any) -> Untrainable | None:
    if not calls:
        return None
    if not isinstance(calls, list):
        return "malformed tool call", f"tool_calls is of type {type(calls).__name__}"
    for call in calls:
        if call is None:  # some providers send null for no call
            continue
        if isinstance(call, dict) and (call.get("type") == "custom" or isinstance(call.get("custom"), dict)):
            return "custom tool call", f"{call!r:.80}"
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            return "malformed tool call", f"{call!r:.80}"
        if call.get("extra"):  # from a file whose calls say more than their name and arguments
            return "malformed tool call", f"the call of {name!r} also says {call['extra']!r:.80}"
    return None


def _why_hidden(message: Mapping[str, Any]) -> Untrainable | None:
    """Reasoning that came encrypted only."""
    details = message.get("reasoning_details")
    if not isinstance(details, list) or structured_reasoning(message):
        return None
    hidden = any(isinstance(detail, dict) and _is_withheld(detail) for detail in details)
    return ("redacted thinking", "its reasoning_details are encrypted") if hidden else None


def _why_empty(message: Mapping[str, Any]) -> Untrainable | None:
    calls = any(call is not None for call in message.get("tool_calls") or ())
    content = message.get("content")
    said = content.strip() if isinstance(content, str) else content
    if said or calls or structured_reasoning(message):
        return None
    return "empty reply", "it has no text, no reasoning and no tool call"
