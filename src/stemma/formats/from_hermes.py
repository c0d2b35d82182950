"""Trajectory → messages: both dialects of the ShareGPT `conversations` list, read back to API messages.

`from_trajectory(to_trajectory(m)) == m`, up to what the format does not carry:

both       · fields other than role, content, reasoning, tool_calls and tool_call_id; a call's type; the role developer
           · the difference between content that is missing, null or ""; a content list, which is one text; blank space
             at the end of an answer; blank text beside calls, be it after a thought in the text; blank reasoning
           · the spelling of JSON arguments: key order is kept; spacing, escapes and doubled keys are not; arguments
             that were not JSON are {}; entries of tool_calls that are no calls
           · where a thought stood (reasoning, reasoning_content, tag, scratchpad), if both are written the same way
           · the model's own text where it has the form this format gives to structure: `</think>` on a line of its own
             in reasoning, a whole tool call in an answer
hermes     · the conversation's system messages, for the system turn is generated; results that follow no call
           · the ids of calls that were never answered; which of several calls of one name or one id a result belongs
             to, if the results are not in order; the spelling of results that are JSON
sharegpt   · all ids: calls are `call_0`, `call_1`, and so on, and results belong to them in order; blank space before
             an answer
           · results that are not text, which are written as JSON

An id that is not carried is made up, and is like no other in the conversation. What was read is written again as it
was, unless the model's text had that form. `tests/formats/test_from_hermes.py` checks it with hostile text.

It also reads what others wrote: think blocks missing or several, calls anywhere in a turn, results of several calls in
one turn, `user`, `assistant` and `observation` for the speakers. A `<think>` that is not written as this format writes
it stays in the content; `api.normalise_reply` moves it.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple, NoReturn

from stemma.errors import BadTrajectory
from stemma.formats.hermes import STYLES
from stemma.formats.jsonl import to_json
from stemma.formats.markers import PROMPT_HEAD, PROMPT_TAIL, is_generated, json_responses

_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "tool": "tool",
    "observation": "tool",
}
_EMPTY_THINK = re.compile(r"<think>\n</think>(?:\n|\Z)")
_THINK_END = re.compile(r"\n</think>(?:\n|\Z)")
_CALL = re.compile(r"<tool_call>\s*")
_CALL_END = re.compile(r"\s*</tool_call>\n?")
_NEXT_RESULT = re.compile(r"\n?</tool_response>\n?<tool_response>\n?")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_value_at = json.JSONDecoder(parse_constant=_refuse).raw_decode

_Turn = tuple[str, Any]
"""The API's role, and the value."""


class Trajectory(NamedTuple):
    """A trajectory as it was read."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    """The tools that were offered, as the API takes them; none where the row does not say."""
    style: str
    """The dialect: hermes or sharegpt."""


def from_trajectory(trajectory: Any, style: str | None = None) -> list[dict[str, Any]]:
    """The API messages of a row, or of its `conversations` alone; the dialect shows, unless `style` names it."""
    return read_trajectory(trajectory, style).messages


def read_trajectory(trajectory: Any, style: str | None = None) -> Trajectory:
    """All that a row, or its `conversations` alone, says: messages, tools and dialect."""
    entry = trajectory if isinstance(trajectory, Mapping) else {"conversations": trajectory}
    turns = _turns(entry.get("conversations"))
    if style is None:
        style = "hermes" if _looks_like_hermes(entry, turns) else "sharegpt"
    elif style not in STYLES:
        raise BadTrajectory(f"there is no style {style!r}; take one of {', '.join(STYLES)}")
    return Trajectory(_Reader(style).read(turns), _tools(entry, turns), style)


def _turns(conversations: Any) -> list[_Turn]:
    if not isinstance(conversations, list | tuple):
        raise BadTrajectory(f"`conversations` is a list of turns, not {type(conversations).__name__}")
    return [_turn(turn, at) for at, turn in enumerate(conversations)]


def _turn(turn: Any, at: int) -> _Turn:
    if not isinstance(turn, Mapping) or "from" not in turn or "value" not in turn:
        raise BadTrajectory(f"turn {at} is not a dict with `from` and `value`: {turn!r:.80}")
    role, value = _ROLES.get(str(turn["from"])), turn["value"]
    if role is None:
        raise BadTrajectory(f"turn {at} is from {turn['from']!r}; known speakers are {', '.join(_ROLES)}")
    if not isinstance(value, str) and role != "user":
        raise BadTrajectory(f"turn {at} has a {type(value).__name__} for its value; only text can be read")
    return role, value


def _looks_like_hermes(entry: Mapping[str, Any], turns: list[_Turn]) -> bool:
    if turns and is_generated(turns[0][1]):
        return True
    if "tools" in entry or "source" in entry:
        return False
    if any(role == "assistant" and _EMPTY_THINK.match(value) for role, value in turns):
        return True
    results = [json_responses(value) for role, value in turns if role == "tool"]
    return bool(results) and all(found and all(_is_envelope(said, 3) for _, said in found) for found in results)


def _is_envelope(said: Any, least: int) -> bool:
    return (
        isinstance(said, dict)
        and "content" in said
        and len(said) >= least
        and said.keys() <= {"tool_call_id", "name", "content"}
    )


def _tools(entry: Mapping[str, Any], turns: list[_Turn]) -> list[dict[str, Any]]:
    offered = entry.get("tools")
    if offered is None and turns and is_generated(turns[0][1]):
        offered = turns[0][1].removeprefix(PROMPT_HEAD).partition(PROMPT_TAIL)[0]
    if isinstance(offered, str):
        try:
            offered = json.loads(offered or "[]")
        except ValueError as error:
            raise BadTrajectory(f"the tools of the row are not JSON: {error}") from error
    if not isinstance(offered or [], list) or not all(isinstance(tool, dict) for tool in offered or ()):
        raise BadTrajectory(f"the tools of the row are not a list of dicts: {offered!r:.80}")
    return [tool if "function" in tool else _tool(tool) for tool in offered or ()]


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    """Back from the prompt's canon, whose `required` says nothing."""
    fields = {key: value for key, value in function.items() if key != "required" or value is not None}
    return {"type": "function", "function": fields}


class _Reader:
    """Goes through the turns once; ids that the row does not tell are made up at the end, when all others are known."""

    def __init__(self, style: str) -> None:
        self.hermes = style == "hermes"
        self.messages: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.open: deque[dict[str, Any]] = deque()
        """The calls of the last turn that no result has been put to by its place."""
        self.answers: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """Results that are known only by their place, each with its call."""

    def read(self, turns: list[_Turn]) -> list[dict[str, Any]]:
        for at, (role, value) in enumerate(turns):
            if role == "assistant":
                self.assistant(value)
            elif role == "tool":
                alone = turns[at - 1][0] != "tool" and (at + 1 == len(turns) or turns[at + 1][0] != "tool")
                self.tool(value, alone)
            else:
                self.other(role, value)
        self.make_up_ids()
        return self.messages

    def other(self, role: str, value: Any) -> None:
        self.open = deque()
        if self.hermes and not self.messages and role == "system" and is_generated(value):
            value = value.partition(PROMPT_TAIL)[2].strip()  # a compressor's notice may follow the prompt
            if not value:
                return
        self.messages.append({"role": role, "content": "" if value is None else value})

    def assistant(self, value: str) -> None:
        reasoning, rest = _split_think(value, self.hermes)
        content, calls = _split_calls(rest)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning:
            message["reasoning"] = reasoning
        if calls:
            message["tool_calls"] = calls
        self.messages.append(message)
        self.calls += calls
        self.open = deque(calls)

    def tool(self, value: str, alone: bool) -> None:
        said = [said for _, said in json_responses(value) or ()] if self.hermes else []
        if said and all(_is_envelope(one, least=2) for one in said):
            self.enveloped(said)
            return
        for text in _raw_results(value, len(self.open) if alone else 1):
            self.result({"role": "tool", "content": text})

    def enveloped(self, said: list[dict[str, Any]]) -> None:
        self.learn_ids(said)
        for one in said:
            content = one["content"]
            result = {"role": "tool", "content": to_json(content) if isinstance(content, dict | list) else content}
            if "tool_call_id" not in one:
                self.result(result)
                continue
            if one["tool_call_id"] != "":
                result["tool_call_id"] = one["tool_call_id"]
            self.messages.append(result)

    def learn_ids(self, said: list[dict[str, Any]]) -> None:
        """Gives each id to a call of the name that its result tells: the one opposite, else the next that has none."""
        waiting: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        for at, call in enumerate(self.open):
            if call["id"] is None:
                waiting[call["function"]["name"]][at] = call
        told = [(at, one.get("tool_call_id"), str(one.get("name"))) for at, one in enumerate(said)]
        told = [(at, call_id, name) for at, call_id, name in told if call_id and isinstance(call_id, str)]
        seen = set()
        for at, call_id, name in told:
            if waiting[name] and (call_id, name) not in seen:
                waiting[name].pop(at if at in waiting[name] else next(iter(waiting[name])))["id"] = call_id
                seen.add((call_id, name))
        for at, call_id, name in told:  # a provider that repeats an id has given it to several calls
            if at in waiting[name]:
                waiting[name].pop(at)["id"] = call_id

    def result(self, result: dict[str, Any]) -> None:
        if self.open:
            self.answers.append((result, self.open.popleft()))
        self.messages.append(result)

    def make_up_ids(self) -> None:
        known = {str(message.get("tool_call_id")) for message in self.messages} | {call["id"] for call in self.calls}
        fresh = (made_up for number in count() if (made_up := f"call_{number}") not in known)
        for call in self.calls:
            call["id"] = call["id"] or next(fresh)
        for result, call in self.answers:
            result["tool_call_id"] = call["id"]


def _split_think(value: str, hermes: bool) -> tuple[str, str]:
    """The reasoning, and the rest. A block that would not be written back as it stands stays in the rest."""
    if not value.startswith("<think>\n"):
        return "", value
    if hermes and (empty := _EMPTY_THINK.match(value)):
        rest = value[empty.end() :]
        return ("", value) if "<think>" in rest else ("", rest)
    closing = _THINK_END.search(value, len("<think>\n"))
    reasoning = value[len("<think>\n") : closing.start()] if closing else ""
    if closing is None or not reasoning or reasoning.isspace():
        return "", value
    return reasoning, value[closing.end() :]


def _split_calls(text: str) -> tuple[str | None, list[dict[str, Any]]]:
    """The text without the tool calls in it, and the calls. What is tagged as a call and is none stays text."""
    thought = text.find("</think>") if text.startswith("<think>") else -1
    kept, calls, done = [], [], 0
    opening = _CALL.search(text, max(thought, 0))
    while opening:
        call, end = _call_at(text, opening.end())
        if call:
            calls.append(call)
            kept.append(text[done : opening.start()])
            done = end
        opening = _CALL.search(text, end)
    content = "".join([*kept, text[done:]])
    if not calls:
        return content, []
    content = content.removesuffix("\n")
    return content if content.strip() else None, calls


def _call_at(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    """The call whose JSON begins here and the end of its block; None and where to go on if it is none."""
    try:
        body, end = _value_at(text, at)
        closing = _CALL_END.match(text, end)
        if closing is None or not isinstance(body, dict) or not isinstance(body.get("name"), str):
            return None, at
        function = {"name": body["name"], "arguments": to_json(body.get("arguments", {}))}
    except (ValueError, RecursionError):
        return None, at
    call_id = body.get("id") if isinstance(body.get("id"), str) else None
    return {"id": call_id, "type": "function", "function": function}, closing.end()


def _raw_results(value: str, expected: int) -> list[str]:
    """The raw text of a tool turn, or its texts where there are as many as there were calls."""
    if not (value.startswith("<tool_response>") and value.endswith("</tool_response>")):
        return [value]
    text = value.removeprefix("<tool_response>").removesuffix("</tool_response>")
    text = text.removeprefix("\n").removesuffix("\n")
    texts = _NEXT_RESULT.split(text) if expected > 1 else []
    return texts if texts and len(texts) == expected else [text]
