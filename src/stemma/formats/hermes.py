"""Messages → trajectory: the ShareGPT `conversations` list, in both dialects.

`to_trajectory` takes messages as they stand: it moves no inline tags, it converts them where they are.

style="hermes"    the system turn is generated from the tools offered and never taken from the conversation; every gpt
                  turn has a think block, if only an empty one; the results of one turn's calls stand in one tool turn,
                  each as JSON with id, name and content. System messages and results that answer no call are left out.
style="sharegpt"  the older dialect: the conversation's own system messages, a think block only where there was
                  reasoning, each result raw in a tool turn of its own. One a turn, because raw text may hold anything,
                  even what would part it from the next.

    >>> to_trajectory([{"role": "user", "content": "6×7?"}, {"role": "assistant", "content": "42"}])[1:]
    [{'from': 'human', 'value': '6×7?'}, {'from': 'gpt', 'value': '<think>\\n</think>\\n42'}]

Inside JSON bodies control markers are sealed (`markers.seal`). The name of a result is that of the call with its id; by
position only where one of the two has no id; `unknown` where nothing fits. Every value is a string, and no NaN is ever
written. `tests/conformance` holds pairs recorded from the incumbent; `tests/formats/test_hermes.py` the rest.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from stemma.core.canonical import plain
from stemma.core.message import Message
from stemma.errors import BadMessage, BadTrajectory
from stemma.formats.api import join_reasoning, structured_reasoning, text_of
from stemma.formats.markers import PROMPT_HEAD, PROMPT_TAIL, seal

Turn = dict[str, str]
_Call = tuple[Any, str, Any]
"""A tool call: its id if it has one, the name, the arguments as they came."""

UNKNOWN = "unknown"
"""The name of a tool that nothing tells."""

_log = logging.getLogger(__name__)

def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number} is left to Python's json")


# Python's json decides how everything is written. msgspec writes the same bytes several times as fast, save for
# floats and lone surrogates, which it therefore refuses here.
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
_from_json = json.JSONDecoder(parse_constant=_refuse).decode
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(float_hook=_refuse).decode
_respace = msgspec.json.format

_NOT_JSON = (ValueError, TypeError, RecursionError)
"""What parsing or writing hostile JSON raises: bad syntax, NaN, 5,000 digits; foreign objects; 100,000 brackets."""
_NOT_FAST = (*_NOT_JSON, msgspec.MsgspecError)


def to_trajectory(
    messages: Iterable[Any], tools: Sequence[Mapping[str, Any]] | None = None, style: str = "hermes"
) -> list[Turn]:
    """The `conversations` list for API messages; `tools` are those offered to the model, as the API takes them."""
    dicts = [message if type(message) is dict else Message.of(message).to_dict() for message in messages]
    if style == "hermes":
        return [{"from": "system", "value": system_prompt(tools)}, *_hermes_turns(dicts)]
    if style == "sharegpt":
        return [_sharegpt_turn(message, at) for at, message in enumerate(dicts)]
    raise BadTrajectory(f"there is no style {style!r}; take 'hermes' or 'sharegpt'")


def sharegpt_entry(
    messages: Iterable[Any], tools: Sequence[Mapping[str, Any]] | None = None, source: str = "stemma"
) -> dict[str, Any]:
    """A whole row of the older dialect: `conversations`, `tools` as a JSON string, and `source`."""
    conversations = to_trajectory(messages, style="sharegpt")
    return {"conversations": conversations, "tools": _json_of_tools(list(tools or ())), "source": source}


def system_prompt(tools: Sequence[Mapping[str, Any]] | None) -> str:
    """The Hermes function-calling prompt for the tools offered, with `"required": null` as its canon has it."""
    try:
        return _prompt_of(msgspec.json.encode(tools or ()))
    except (ValueError, TypeError, OverflowError):  # what msgspec cannot write, such as a lone surrogate
        return _prompt(list(tools or ()))


@lru_cache(maxsize=64)
def _prompt_of(tools: bytes) -> str:
    """The prompt, remembered: a run offers the same few sets of tools to all its conversations."""
    return _prompt(msgspec.json.decode(tools))


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


def convert_scratchpad_to_think(text: str) -> str:
    """`<REASONING_SCRATCHPAD>` tags as `<think>` tags; a lone closing tag is left alone."""
    if "<REASONING_SCRATCHPAD>" not in text:
        return text
    return text.replace("<REASONING_SCRATCHPAD>", "<think>").replace("</REASONING_SCRATCHPAD>", "</think>")


def _hermes_turns(messages: list[dict[str, Any]]) -> list[Turn]:
    turns: list[Turn] = []
    at, end = 0, len(messages)
    while at < end:
        message = messages[at]
        role = message.get("role")
        at += 1
        if role == "assistant":
            calls = _calls(message)
            turns.append(_gpt_turn(message, calls, "<think>\n</think>\n"))
            first = at
            while calls and at < end and messages[at].get("role") == "tool":
                at += 1
            if at > first:
                turns.append(_tool_turn(messages[first:at], calls))
        elif role == "user":
            turns.append({"from": "human", "value": text_of(message.get("content"))})
        elif role not in _LEFT_OUT:
            raise _no_turn_for(role, at - 1)
    return turns


_LEFT_OUT = ("system", "developer", "tool")
"""Roles that have no turn of their own in the Hermes dialect; a tool's is part of the turn of its call."""


def _sharegpt_turn(message: dict[str, Any], at: int) -> Turn:
    role = message.get("role")
    if role == "assistant":
        return _gpt_turn(message, _calls(message), "")
    text = text_of(message.get("content"))
    if role == "tool":
        return {"from": "tool", "value": f"<tool_response>\n{text}\n</tool_response>"}
    if role == "user":
        return {"from": "human", "value": text}
    if role in ("system", "developer"):
        return {"from": "system", "value": text}
    raise _no_turn_for(role, at)


def _no_turn_for(role: Any, at: int) -> BadMessage:
    return BadMessage(f"message {at} has the role {role!r}, for which a trajectory has no turn; rename or remove it")


def _gpt_turn(message: dict[str, Any], calls: list[_Call], empty_think: str) -> Turn:
    reasoning = _reasoning(message)
    text = f"<think>\n{reasoning}\n</think>\n" if reasoning else ""
    content = message.get("content")
    if content:
        content = convert_scratchpad_to_think(text_of(content))
        if not calls:
            text += content
        elif content and not content.isspace():
            text += content + "\n"
    # Asked before the calls are added: what the arguments say is no thought.
    if "<think>" not in text:
        text = empty_think + text
    if not calls:
        return {"from": "gpt", "value": text.strip()}
    return {"from": "gpt", "value": text + "\n".join([_tool_call(call) for call in calls])}


def _reasoning(message: dict[str, Any]) -> str:
    reasoning = message.get("reasoning")
    if reasoning and isinstance(reasoning, str) and not reasoning.isspace():
        return reasoning
    if "reasoning_content" in message or "reasoning_details" in message or isinstance(message.get("content"), list):
        return join_reasoning(structured_reasoning(message))
    return ""


def _calls(message: dict[str, Any]) -> list[_Call]:
    """The calls of a message; what is no call at all (some providers send null) is skipped."""
    calls = message.get("tool_calls")
    return [_call(call) for call in calls if call and not isinstance(call, str)] if calls else []


def _call(call: Any) -> _Call:
    if type(call) is not dict:  # as an SDK hands it out
        call = plain(call, "tool call")
    function = call.get("function")
    if type(function) is not dict:
        function = {}
    name = function.get("name")
    return call.get("id"), name if isinstance(name, str) else UNKNOWN, function.get("arguments", "")


def _tool_call(call: _Call) -> str:
    _, name, arguments = call
    written = _rewritten(arguments or "{}") if isinstance(arguments, str) else _written(arguments)
    if written is None:
        _log.warning("the arguments of call %r (%s) are not JSON; {} is written for %.200r", *call)
        written = "{}"
    body = f'{{"name": {_quoted(name)}, "arguments": {written}}}'
    return f"<tool_call>\n{seal(body)}\n</tool_call>"


def _tool_turn(results: list[dict[str, Any]], calls: list[_Call]) -> Turn:
    names = _names_of_results(results, calls)
    return {"from": "tool", "value": "\n".join(map(_tool_response, results, names))}


def _names_of_results(results: list[dict[str, Any]], calls: list[_Call]) -> list[str]:
    ids = [result.get("tool_call_id") for result in results]
    if ids == [call[0] for call in calls]:
        return [call[1] for call in calls]
    by_id = {call_id: name for call_id, name, _ in reversed(calls) if call_id and isinstance(call_id, str)}
    names = []
    for at, result_id in enumerate(ids):
        call_id, name = calls[at][:2] if at < len(calls) else (None, UNKNOWN)
        # Opposite first: where a provider repeats an id, position tells the calls apart.
        if result_id and isinstance(result_id, str) and result_id != call_id:
            name = by_id.get(result_id, UNKNOWN if call_id else name)
        names.append(name)
    return names


def _tool_response(result: dict[str, Any], name: str) -> str:
    call_id = result.get("tool_call_id", "")
    written_id = _quoted(call_id) if isinstance(call_id, str) else _written(call_id)
    content = _result(result.get("content"))
    body = f'{{"tool_call_id": {written_id}, "name": {_quoted(name)}, "content": {content}}}'
    return f"<tool_response>\n{seal(body)}\n</tool_response>"


def _result(content: Any) -> str:
    """A result as JSON: parsed where it looks like an object or a list and is one, else the text it is."""
    if isinstance(content, list) or (isinstance(content, dict) and "_multimodal" in content):
        content = text_of(content)
    if not isinstance(content, str):
        return _written(content) or _quoted(str(content))
    if content.lstrip()[:1] in ("{", "["):
        return _rewritten(content) or _quoted(content)
    return _quoted(content)


def _quoted(text: str) -> str:
    try:
        return _encode(text).decode()
    except UnicodeEncodeError:  # a lone surrogate
        return _to_json(text)


def _rewritten(text: str) -> str | None:
    """JSON text as Python's `json` writes it, or None where it is not JSON."""
    try:
        return _respace(_encode(_decode(text)), indent=0).decode()
    except _NOT_FAST:
        pass
    try:
        return _to_json(_from_json(text))
    except _NOT_JSON:
        return None


def _written(value: Any) -> str | None:
    """A value as Python's `json` writes it, or None where it is not JSON."""
    try:
        return _to_json(value)
    except _NOT_JSON:
        return None
