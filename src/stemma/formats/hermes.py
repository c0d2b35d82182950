"""Messages → trajectory: the ShareGPT `conversations` list, in both dialects.

`to_trajectory` takes messages of any provider (`shapes.chat_messages`), and their text as it stands: it moves no inline
tags, it converts them where they are. Blocks whose order a chat message cannot say are written in their order.

style="hermes"    the system turn is generated from the tools offered and never taken from the conversation; every gpt
                  turn has a think block, if only an empty one; the results of one turn's calls stand in one tool turn,
                  each as JSON with id, name and content. System messages and results that answer no call are left out.
style="sharegpt"  the older dialect: the conversation's own system messages, a think block only where there was
                  reasoning, each result raw in a tool turn of its own. One a turn, because raw text may hold anything,
                  even what would part it from the next.

    >>> to_trajectory([{"role": "user", "content": "6×7?"}, {"role": "assistant", "content": "42"}])[1:]
    [{'from': 'human', 'value': '6×7?'}, {'from': 'gpt', 'value': '<think>\\n</think>\\n42'}]

A message that was read from a trajectory keeps its turn in `raw_turn`, if this module would write it otherwise. That
turn is written again as it was, as long as it still reads as that message (`from_hermes.count_of_turn`): a system turn
then stands in the place of the generated one.

Inside JSON bodies control markers are sealed (`markers.seal`). The name of a result is that of the call with its id; by
position only where one of the two has no id; `unknown` where nothing fits. Every value is a string, and no NaN is ever
written. `tests/conformance` holds pairs recorded from the incumbent; `tests/formats/test_hermes.py` the rest.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from stemma.core.canonical import plain
from stemma.core.message import RAW_TURN, REASONING_FIELDS, Message
from stemma.errors import BadMessage, BadTrajectory
from stemma.formats.api import join_reasoning, structured_reasoning, text_of
from stemma.formats.markers import PROMPT_HEAD, PROMPT_TAIL, seal
from stemma.formats.shapes import chat_messages, reply_in_order

Turn = dict[str, str]
_Call = tuple[Any, str, str]
"""A tool call: its id if it has one, the name, and how it is written."""

STYLES = ("hermes", "sharegpt")
REWRITTEN = "reply not spelled as it was sampled"
"""How a row can differ from what the model said because of the format."""
UNKNOWN = "unknown"
"""The name of a tool that nothing tells."""
EMPTY_THINK = {"hermes": "<think>\n</think>\n", "sharegpt": ""}
"""How a reply without reasoning begins."""
_SCRATCHPAD = "<REASONING_SCRATCHPAD>"

_SYSTEM = ("system", "developer")
_LEFT_OUT = (*_SYSTEM, "tool")
"""Roles that have no turn of their own in the Hermes dialect; a tool's is part of the turn of its call."""

_REASONING_ELSEWHERE = frozenset(REASONING_FIELDS) - {"reasoning"}

_log = logging.getLogger(__name__)


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number} is left to Python's json")


# Python's json decides how everything is written. msgspec writes the same bytes several times as fast, save for
# floats and lone surrogates, which it therefore refuses here. It reads UTF-8, which text beyond ASCII is not: that is
# read by Python, which need not convert it first.
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
_from_json = json.JSONDecoder(parse_constant=_refuse).decode
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(float_hook=_refuse).decode
_decode_wide = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_respace = msgspec.json.format

_ODD_ESCAPE = re.compile(r"\\[u/]")
"""Python writes no `\\/`, and `\\u` only for a few characters. After a backslash that is itself escaped it is none; it
is then taken for one, which only costs time."""
_WORDS = ("true", "false", "null")

_NOT_JSON = (ValueError, TypeError, RecursionError)
"""What parsing or writing hostile JSON raises: bad syntax, NaN, 5,000 digits; foreign objects; 100,000 brackets."""
_NOT_FAST = (*_NOT_JSON, OverflowError, msgspec.MsgspecError)


def to_trajectory(
    messages: Iterable[Any], tools: Sequence[Mapping[str, Any]] | None = None, style: str = "hermes"
) -> list[Turn]:
    """The `conversations` list for API messages; `tools` are those offered to the model, as the API takes them."""
    dicts = [message if type(message) is dict else Message.of(message).to_dict() for message in messages]
    dicts, origins = chat_messages(dicts)
    if style == "hermes":
        turns = _hermes_turns(dicts, origins)
        if dicts and dicts[0].get("role") in _SYSTEM and _kept_turn(dicts, 0, style):
            return turns
        return [{"from": "system", "value": system_prompt(tools)}, *turns]
    if style == "sharegpt":
        return _sharegpt_turns(dicts, origins)
    raise BadTrajectory(f"there is no style {style!r}; take one of {', '.join(STYLES)}")


def sharegpt_entry(
    messages: Iterable[Any], tools: Sequence[Mapping[str, Any]] | None = None, source: str = "stemma"
) -> dict[str, Any]:
    """A whole row of the older dialect: `conversations`, `tools` as a JSON string, and `source`."""
    conversations = to_trajectory(messages, style="sharegpt")
    return {"conversations": conversations, "tools": _json_of_tools(list(tools or ())), "source": source}


def system_prompt(tools: Sequence[Mapping[str, Any]] | None) -> str:
    """The Hermes function-calling prompt for the tools offered, with `"required": null` as its canon has it."""
    try:
        return _prompt_of(msgspec.msgpack.encode(tools or ()))
    except (UnicodeEncodeError, TypeError, OverflowError):  # what msgspec cannot write, such as a lone surrogate
        return _prompt(list(tools or ()))


@lru_cache(maxsize=64)
def _prompt_of(tools: bytes) -> str:
    """The prompt, remembered: a run offers the same few sets of tools to all its conversations."""
    return _prompt(msgspec.msgpack.decode(tools))


def _prompt(tools: list[Mapping[str, Any]]) -> str:
    listed = [
        {
            "name": function.get("name", UNKNOWN),
            "description": function.get("description", ""),
            "parameters": function.get("parameters", {}),
            "required": None,
        }
        for function in (tool.get("function") or tool for tool in tools)
    ]
    return f"{PROMPT_HEAD}{seal(_json_of_tools(listed))}{PROMPT_TAIL}"


def _json_of_tools(tools: list[Any]) -> str:
    try:
        return _to_json(tools)
    except _NOT_JSON as error:
        raise BadTrajectory(f"the tools cannot be written as JSON: {error}") from error


def is_respelled(message: Mapping[str, Any]) -> bool:
    """Whether a reply's text is written otherwise than it was sampled: without blank space around it, or other tags."""
    content = message.get("content")
    if not isinstance(content, str) or not content or RAW_TURN in message:
        return False
    blank = content.isspace() if message.get("tool_calls") else content.strip() != content
    return blank or _SCRATCHPAD in content


def convert_scratchpad_to_think(text: str) -> str:
    """`<REASONING_SCRATCHPAD>` tags as `<think>` tags; a lone closing tag is left alone."""
    if _SCRATCHPAD not in text:
        return text
    return text.replace(_SCRATCHPAD, "<think>").replace("</REASONING_SCRATCHPAD>", "</think>")


def _hermes_turns(messages: list[dict[str, Any]], origins: Sequence[int]) -> list[Turn]:
    turns: list[Turn] = []
    at, end = 0, len(messages)
    while at < end:
        message = messages[at]
        role = message.get("role")
        kept = _kept_turn(messages, at, "hermes")
        at += kept or 1
        if role == "assistant":
            calls = calls_of(message)
            turns.append(_raw(message) if kept else gpt_turn(message, calls, "hermes"))
            first = at
            while calls and at < end and messages[at].get("role") == "tool" and not _kept_turn(messages, at, "hermes"):
                at += 1
            if at > first:
                turns.append(tool_turn(messages[first:at], calls))
        elif kept:
            turns.append(_raw(message))
        elif role == "user":
            turns.append({"from": "human", "value": text_of(message.get("content"))})
        elif role not in _LEFT_OUT:
            raise _no_turn_for(role, origins[at - 1])
    return turns


def _sharegpt_turns(messages: list[dict[str, Any]], origins: Sequence[int]) -> list[Turn]:
    turns: list[Turn] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        kept = _kept_turn(messages, at, "sharegpt")
        turns.append(_raw(message) if kept else sharegpt_turn(message, origins[at]))
        at += kept or 1
    return turns


def _kept_turn(messages: list[dict[str, Any]], at: int, style: str) -> int:
    """How many messages the turn stands for that the message at `at` was read from; 0 if there is none to write."""
    if RAW_TURN not in messages[at]:
        return 0
    from stemma.formats.from_hermes import count_of_turn  # which reads by means of what is here

    return count_of_turn(messages[at][RAW_TURN], messages, at, style)


def has_raw_turn(message: dict[str, Any], style: str) -> bool:
    """Whether a message is written in this style as the turn it was read from, byte for byte, whatever its shape."""
    return bool(_kept_turn([message], 0, style))


def _raw(message: dict[str, Any]) -> Turn:
    speakers = {"assistant": "gpt", "tool": "tool", "user": "human"}
    return {"from": speakers.get(message["role"], "system"), "value": message[RAW_TURN]}


def sharegpt_turn(message: dict[str, Any], at: int) -> Turn:
    """The turn of a message in the older dialect; `at` is where it stands."""
    role = message.get("role")
    if role == "assistant":
        return gpt_turn(message, calls_of(message), "sharegpt")
    text = text_of(message.get("content"))
    if role == "tool":
        return {"from": "tool", "value": f"<tool_response>\n{text}\n</tool_response>"}
    if role == "user":
        return {"from": "human", "value": text}
    if role in _SYSTEM:
        return {"from": "system", "value": text}
    raise _no_turn_for(role, at)


def _no_turn_for(role: Any, at: int) -> BadMessage:
    return BadMessage(f"message {at} has the role {role!r}, for which a trajectory has no turn; rename or remove it")


def gpt_turn(message: dict[str, Any], calls: list[_Call], style: str) -> Turn:
    """The turn of a reply with these calls."""
    if type(message.get("content")) is list and (ordered := reply_in_order(message)):
        return _turn_in_order(message, ordered, style)
    empty_think = EMPTY_THINK[style]
    text = thought = _think_block(message)
    if content := message.get("content"):
        if type(content) is not str:
            content = text_of(content)
        if _SCRATCHPAD in content:
            content = convert_scratchpad_to_think(content)
        if not calls:
            text += content
        elif content and not content.isspace():
            text = f"{text}{content}\n"
    # Asked before the calls are added: what the arguments say is no thought.
    if not thought and "<think>" not in text:
        text = empty_think + text
    if not calls:
        return {"from": "gpt", "value": text.strip()}
    written = calls[0][2] if len(calls) == 1 else "\n".join([written for _, _, written in calls])
    return {"from": "gpt", "value": text + written}


def _turn_in_order(message: dict[str, Any], ordered: list[tuple[str, Any]], style: str) -> Turn:
    """A reply whose text or thoughts go on after a call: each block on lines of its own, in its place."""
    beside = _think_block({field: message[field] for field in REASONING_FIELDS if field in message})
    blocks = [block for kind, said in ordered if (block := _block(kind, said))]
    thinks = beside or any(kind == "thought" or (kind == "text" and "<think>" in said) for kind, said in ordered)
    return {"from": "gpt", "value": (beside if thinks else EMPTY_THINK[style]) + "\n".join(blocks)}


def _block(kind: str, said: Any) -> str:
    if kind == "call":
        return "".join(written for _, _, written in calls_of({"tool_calls": [said]}))
    if kind == "thought":
        return f"<think>\n{said}\n</think>" if said else ""
    return convert_scratchpad_to_think(said) if kind == "text" else text_of([said])


def _think_block(message: dict[str, Any]) -> str:
    reasoning = message.get("reasoning")
    if not (reasoning and isinstance(reasoning, str) and not reasoning.isspace()):
        if not _may_reason_elsewhere(message):
            return ""
        reasoning = join_reasoning(structured_reasoning(message))
    return f"<think>\n{reasoning}\n</think>\n" if reasoning else ""


def _may_reason_elsewhere(message: dict[str, Any]) -> bool:
    return type(message.get("content")) is list or not _REASONING_ELSEWHERE.isdisjoint(message)


def calls_of(message: dict[str, Any]) -> list[_Call]:
    """The calls of a message; what is no call at all (some providers send null) is skipped."""
    found: list[_Call] = []
    calls = message.get("tool_calls") or ()
    if type(message.get("content")) is list and (ordered := reply_in_order(message)):
        calls = [said for kind, said in ordered if kind == "call"]
    for call in calls:
        if type(call) is not dict:
            if not call or isinstance(call, str):
                continue
            call = plain(call, "tool call")  # as an SDK hands it out
        function = call.get("function")
        if type(function) is not dict:
            function = {}
        name, call_id = function.get("name"), call.get("id")
        if type(name) is not str:
            name = UNKNOWN
        found.append((call_id, name, _tool_call(call_id, name, function.get("arguments", ""))))
    return found


def _tool_call(call_id: Any, name: str, arguments: Any) -> str:
    written = rewritten(arguments or "{}") if type(arguments) is str else _written(arguments)
    if written is None:
        # All by repr: these are a stranger's words, and a log is read in a terminal.
        _log.warning("the arguments of call %r to %r are not JSON; {} is written for %.200r", call_id, name, arguments)
        written = "{}"
    return call_text(name, written)


def call_text(name: str, arguments: str) -> str:
    """How a call is written, given its arguments as Python writes JSON."""
    return f'<tool_call>\n{{"name": {_sealed_name(name)}, "arguments": {seal(arguments)}}}\n</tool_call>'


@lru_cache(maxsize=1024)
def _sealed_name(name: str) -> str:
    return seal(_quoted_name(name))


def tool_turn(results: list[dict[str, Any]], calls: list[_Call]) -> Turn:
    """The turn of all results of a reply with these calls."""
    if len(results) == 1 == len(calls) and results[0].get("tool_call_id") == calls[0][0]:
        return {"from": "tool", "value": tool_response(results[0], calls[0][1])}
    responses = map(tool_response, results, _names_of_results(results, calls))
    return {"from": "tool", "value": "\n".join(responses)}


def _names_of_results(results: list[dict[str, Any]], calls: list[_Call]) -> list[str]:
    by_id = {call_id: name for call_id, name, _ in reversed(calls) if call_id and isinstance(call_id, str)}
    names = []
    for at, result in enumerate(results):
        call_id, name, _ = calls[at] if at < len(calls) else (None, UNKNOWN, None)
        result_id = result.get("tool_call_id")
        # Position first: where a provider repeats an id, it alone tells the calls apart.
        if result_id and isinstance(result_id, str) and result_id != call_id:
            name = by_id.setdefault(result_id, UNKNOWN if call_id else name)
        names.append(name)
    return names


def tool_response(result: dict[str, Any], name: str) -> str:
    """How the result of a call to the tool `name` is written."""
    call_id, content = result.get("tool_call_id", ""), result.get("content")
    written_id = _written_id(call_id)
    written = _text_result(content) if type(content) is str else _other_result(content)
    return (
        f'<tool_response>\n{{"tool_call_id": {written_id}, "name": {_sealed_name(name)}, '
        f'"content": {seal(written)}}}\n</tool_response>'
    )


def _written_id(call_id: Any) -> str:
    if type(call_id) is not str:
        return seal(_written(call_id) or "null")
    return f'"{call_id}"' if call_id.isidentifier() else seal(_quoted(call_id))


def _text_result(content: str) -> str:
    """A result as JSON: parsed where it looks like an object or a list and is one, else the text it is."""
    if content.lstrip()[:1] in ("{", "["):
        return _rewritten_object(content) or rewritten(content) or _quoted(content)
    return _quoted(content)


def _other_result(content: Any) -> str:
    if isinstance(content, list | str) or (isinstance(content, dict) and "_multimodal" in content):
        return _text_result(text_of(content))
    return _written(content) or _quoted(text_of(content))


def _quoted(text: str) -> str:
    try:
        return _encode(text).decode()
    except UnicodeEncodeError:  # a lone surrogate
        return _to_json(text)


_quoted_name = lru_cache(maxsize=1024)(_quoted)
"""For names of tools and keys, of which there are few."""


def rewritten(text: str) -> str | None:
    """JSON text as Python's `json` writes it, or None where it is not JSON."""
    decode = _decode if text.isascii() else _decode_wide
    try:
        return _respace(_encode(decode(text)), indent=0).decode()
    except _NOT_FAST:
        pass
    try:
        return _to_json(_from_json(text))
    except _NOT_JSON:
        return None


def _rewritten_object(text: str) -> str | None:
    """The same for an object of texts, small numbers and the like, as most results are; None for any other.

    Its texts are not read: JSON that has no escape which Python would write otherwise is as Python writes it.
    """
    try:
        fields = _decode_object(text)
    except _NOT_FAST:
        return None
    if _ODD_ESCAPE.search(text):
        return None
    written = []
    for name, raw in fields.items():
        value = str(raw, "utf-8")
        if not (value[0] == '"' or (value.isdigit() and len(value) < 19) or value in _WORDS):
            return None
        written.append(f"{_quoted_name(name)}: {value}")
    return f"{{{', '.join(written)}}}"


def _written(value: Any) -> str | None:
    """A value as Python's `json` writes it, or None where it is not JSON."""
    try:
        return _to_json(value)
    except _NOT_JSON:
        return None
