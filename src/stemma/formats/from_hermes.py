"""Trajectory → messages: both dialects of the ShareGPT `conversations` list, read back to API messages.

`from_trajectory(to_trajectory(m)) == m`, up to what the format does not carry:

both       · fields other than role, content, reasoning, tool_calls and tool_call_id; a call's type; the role developer
           · the difference between content that is missing, null or ""; a content list, which is one text; blank space
             at the end of an answer; blank text beside calls, be it after a thought in the text; blank reasoning
           · the spelling of JSON arguments, which are written as Python writes JSON; arguments that were not JSON are
             {}; entries of tool_calls that are no calls
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
it stays in the content; `api.normalise_reply` moves it. Arguments are the JSON text of the turn, unless control markers
are sealed in it.

LLaMA-Factory's dialect is read, too: calls are JSON in turns of `function_call`, a blank line parts a thought from the
answer, and results are bare. A row is taken for one of these if it has such a turn or a `system` column.

With `exact`, as files are read, nothing that a turn says is moved or lost. Text after a tool call stays after it: such
a reply is a list of content blocks. What a call says beside its name, its arguments and its id is in the call's
`extra`. The generated system turn is left out only where it is the one that the tools give. And a turn that `hermes`
would write otherwise stays in `raw_turn` of its first message, so that any turns that begin with a system turn (in the
older dialect: any turns at all) are written again as they were, up to the names of speakers.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, NoReturn

import msgspec

from stemma.core.message import RAW_TURN
from stemma.errors import BadTrajectory
from stemma.formats.hermes import (
    STYLES,
    call_text,
    calls_of,
    gpt_turn,
    rewritten,
    sharegpt_turn,
    system_prompt,
    tool_response,
    tool_turn,
)
from stemma.formats.jsonl import to_json
from stemma.formats.markers import PROMPT_HEAD, PROMPT_TAIL, has_sealed, is_generated, json_responses

_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
}
_EMPTY_THINK = re.compile(r"<think>\n</think>(?:\n|\Z)")
_THINK_END = re.compile(r"\n</think>(?:\n|\Z)")
_CALL = re.compile(r"<tool_call>\s*")
_CALL_END = re.compile(r"\s*</tool_call>")
_NEXT_RESULT = re.compile(r"\n?</tool_response>\n?<tool_response>\n?")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_value_at = json.JSONDecoder(parse_constant=_refuse).raw_decode


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    """A call as most are written."""

    name: str
    arguments: msgspec.Raw


class _Result(msgspec.Struct, forbid_unknown_fields=True):
    """A result as most are written."""

    tool_call_id: str
    name: str
    content: msgspec.Raw


_decode_call = msgspec.json.Decoder(_Call).decode
_decode_result = msgspec.json.Decoder(_Result).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NO_FIELDS = (msgspec.MsgspecError, ValueError, RecursionError)

_Turn = tuple[str, Any]
"""The API's role, and the value."""


READ_STYLES = (*STYLES, "llamafactory")


class Trajectory(NamedTuple):
    """A trajectory as it was read."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    """The tools that were offered, as the API takes them; none where the row does not say."""
    style: str
    """The dialect: hermes, sharegpt or llamafactory."""


def from_trajectory(trajectory: Any, style: str | None = None) -> list[dict[str, Any]]:
    """The API messages of a row, or of its `conversations` alone; the dialect shows, unless `style` names it."""
    return read_trajectory(trajectory, style).messages


def read_trajectory(trajectory: Any, style: str | None = None, *, exact: bool = False) -> Trajectory:
    """All that a row, or its `conversations` alone, says: messages, tools and dialect."""
    entry = trajectory if isinstance(trajectory, Mapping) else {"conversations": trajectory}
    turns = _turns(entry.get("conversations"))
    if style is None:
        style = _style(entry, turns)
    elif style not in READ_STYLES:
        raise BadTrajectory(f"there is no style {style!r}; take one of {', '.join(READ_STYLES)}")
    if style == "llamafactory":
        turns = [
            (role, f"<tool_response>\n{value}\n</tool_response>" if role == "tool" else value) for role, value in turns
        ]
    tools = _tools(entry, turns)
    return Trajectory(_Reader(style, tools if exact else None).read(turns), tools, style)


def count_of_turn(value: Any, messages: list[dict[str, Any]], at: int, style: str) -> int:
    """How many messages, from `at` on, the turn `value` stands for; 0 if it does not read as what they say now."""
    message = messages[at]
    role = message.get("role")
    if not isinstance(value, str):
        return 0
    if role == "assistant":
        reader = _Reader(style, [])
        reader.assistant(value)
        reader.order_mixed()
        return int(_said(reader.messages[0]) == _said(message))
    if role == "tool":
        after = [one for one in messages[at:] if one.get("role") == "tool"]
        return next((len(said) for said in _possible_results(value, style) if _are(after, said)), 0)
    said = message.get("content")
    return int(said == value or (is_generated(value) and bool(said) and said == _notice(value)))


def _said(reply: dict[str, Any]) -> tuple[Any, ...]:
    """What a reply says, without ids, which a turn need not tell."""
    content = reply.get("content") or ""
    if isinstance(content, list):
        content = [{key: block[key] for key in block if key != "id"} for block in content if isinstance(block, dict)]
    calls = [(call.get("function"), call.get("extra")) for call in reply.get("tool_calls") or () if call]
    return content, reply.get("reasoning") or "", calls


def _possible_results(value: str, style: str) -> Iterator[list[dict[str, Any]]]:
    """What the results of a tool turn can be: as many as it has, or all of it as one."""
    if style == "hermes" and (said := _envelopes(value)):
        yield [_enveloped(one) for one in said]
        return
    for expected in (value.count("<tool_response>"), 1):
        yield [{"content": text} for text in _raw_results(value, expected)]


def _are(results: list[dict[str, Any]], said: list[dict[str, Any]]) -> bool:
    """Whether the first results say the same as `said`."""
    told = zip(results, said, strict=False)
    return len(results) >= len(said) and all(said.items() <= result.items() for result, said in told)


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
    return role, _tagged_calls(value, at) if turn["from"] == "function_call" else value


def _tagged_calls(value: str, at: int) -> str:
    """LLaMA-Factory's turn of calls, a JSON object or list that words may precede, with each call in its own tags."""
    said, tag, body = value.rpartition("<tool_call>\n")
    try:
        text = body.removesuffix("\n</tool_call>") if tag else value
        calls = [msgspec.Raw(text.encode())] if text.lstrip()[:1] == "{" else _decode_list(text)
        for call in calls:
            _decode_fields(call)["name"]
    except (*_NO_FIELDS, KeyError) as error:
        raise BadTrajectory(f"turn {at} is from 'function_call', and no calls can be read in it: {error}") from error
    return said + "\n".join(f"<tool_call>\n{bytes(call).decode()}\n</tool_call>" for call in calls)


def _style(entry: Mapping[str, Any], turns: list[_Turn]) -> str:
    if _looks_like_hermes(entry, turns):
        return "hermes"
    speakers = {turn["from"] for turn in entry["conversations"]}
    own = speakers & {"function_call", "observation"} or isinstance(entry.get("system"), str)
    return "llamafactory" if own and "tool" not in speakers else "sharegpt"


def _looks_like_hermes(entry: Mapping[str, Any], turns: list[_Turn]) -> bool:
    if turns and is_generated(turns[0][1]):
        return True
    if "source" in entry or "system" in entry:
        return False
    if "tools" in entry:  # as `hermes` has them beside the conversation's own system prompt; others list no turns
        return "trained_turns" in entry
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

    def __init__(self, style: str, tools: list[dict[str, Any]] | None = None) -> None:
        """`tools`, if given, are those that the row offers, and turns are read exactly."""
        self.style, self.tools = style, tools
        self.hermes, self.exact = style == "hermes", tools is not None
        self.starts: list[int] = []
        """Where each turn's messages begin."""
        self.mixed: list[tuple[dict[str, Any], list[str | dict[str, Any]]]] = []
        """Replies with text after a call, each with its texts and calls in order."""
        self.written: dict[int, str] = {}
        """The arguments of each call as Python writes JSON."""
        self.as_written: dict[int, str] = {}
        """Results, by their place, whose turn is what would be written if their tool had this name."""
        self.messages: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.open: deque[dict[str, Any]] = deque()
        """The calls of the last turn that no result has been put to by its place."""
        self.answers: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """Results that are known only by their place, each with its call."""

    def read(self, turns: list[_Turn]) -> list[dict[str, Any]]:
        for at, (role, value) in enumerate(turns):
            self.starts.append(len(self.messages))
            if role == "assistant":
                self.assistant(value)
            elif role == "tool":
                alone = turns[at - 1][0] != "tool" and (at + 1 == len(turns) or turns[at + 1][0] != "tool")
                self.tool(value, alone)
            else:
                self.other(role, value, opens=at > 0 or len(turns) < 2 or turns[1][0] != "system")
        self.starts.append(len(self.messages))
        self.make_up_ids()
        self.order_mixed()
        if self.exact and self.style in STYLES:
            self.keep_odd_turns(turns)
        return self.messages

    def other(self, role: str, value: Any, opens: bool) -> None:
        """A turn that is neither the model's nor a tool's; `opens` is whether it is the only leading system turn."""
        self.open = deque()
        if self.hermes and not self.messages and role == "system" and is_generated(value):
            notice = _notice(value)  # a compressor's, which may follow the prompt
            if not notice and (not self.exact or (opens and value == system_prompt(self.tools))):
                return
            value = notice or value
        self.messages.append({"role": role, "content": "" if value is None else value})

    def assistant(self, value: str) -> None:
        reasoning, rest = _split_think(value, self.style)
        texts, found = _split_calls(rest, self.exact)
        calls = [call for call, _ in found]
        self.written |= {id(call): written for call, written in found}
        message: dict[str, Any] = {"role": "assistant", "content": _content(texts, calls)}
        if reasoning:
            message["reasoning"] = reasoning
        if calls:
            message["tool_calls"] = calls
        if self.exact and any(text.strip() for text in texts[1:]):
            self.mixed.append((message, _in_order(texts, calls)))
        self.messages.append(message)
        self.calls += calls
        self.open = deque(calls)

    def tool(self, value: str, alone: bool) -> None:
        if self.hermes and self.exact and (known := _usual_result(value)):
            result, name = known
            self.as_written[len(self.messages)] = name
            self.learn_ids([{"tool_call_id": result["tool_call_id"], "name": name}])
            self.messages.append(result)
            return
        if self.hermes and (said := _envelopes(value)):
            self.enveloped(said)
            return
        for text in _raw_results(value, len(self.open) if alone else 1):
            self.result({"role": "tool", "content": text})

    def enveloped(self, said: list[dict[str, Any]]) -> None:
        self.learn_ids(said)
        for one in said:
            result = {"role": "tool", **_enveloped(one)}
            if "tool_call_id" in one:
                self.messages.append(result)
            else:
                self.result(result)

    def learn_ids(self, said: list[dict[str, Any]]) -> None:
        """Gives each id to a call of the name that its result tells: the one opposite, else the next that has none."""
        if len(self.open) == 1 == len(said):  # as the rest of this does, sooner
            call, call_id = self.open[0], said[0].get("tool_call_id")
            if call["id"] is None and call["function"]["name"] == str(said[0].get("name")):
                call["id"] = call_id if call_id and isinstance(call_id, str) else None
            return
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

    def order_mixed(self) -> None:
        """Makes each reply with text after a call a list of blocks; ids must be known by then."""
        for message, pieces in self.mixed:
            message["content"] = [_block(piece) for piece in pieces]
            del message["tool_calls"]

    def keep_odd_turns(self, turns: list[_Turn]) -> None:
        """Keeps each turn that would be written otherwise, or not at all, on its first message.

        And that of each list of blocks, which could have been written in other ways.
        """
        calls: list[Any] = []
        for at, (role, value) in enumerate(turns):
            messages = self.messages[self.starts[at] : self.starts[at + 1]]
            written: str | None = value
            if role == "assistant":
                calls = self.calls_of(messages[0])
                written = gpt_turn(messages[0], calls, self.style)["value"]
            elif role == "tool" and self.hermes:
                follows = at > 0 and turns[at - 1][0] == "assistant" and bool(calls)
                last = at + 1 == len(turns) or turns[at + 1][0] != "tool"
                name = self.as_written.get(self.starts[at])
                if not follows or not last:
                    written = None
                elif len(calls) > 1 or calls[0][:2] != (messages[0].get("tool_call_id"), name):
                    written = tool_turn(messages, calls)["value"]
            elif role == "tool":
                written = sharegpt_turn(messages[0], at)["value"] if len(messages) == 1 else None
            elif role == "system" and self.hermes:
                written = None
            mixed = role == "assistant" and type(messages[0]["content"]) is list
            if messages and (written != value or mixed):
                messages[0][RAW_TURN] = value

    def calls_of(self, message: dict[str, Any]) -> list[Any]:
        """`hermes.calls_of`, from what is known of the arguments."""
        calls = message.get("tool_calls")
        if calls is None or any(id(call) not in self.written for call in calls):
            return calls_of(message)
        return [
            (call["id"], name := call["function"]["name"], call_text(name, self.written[id(call)])) for call in calls
        ]


def _usual_result(value: str) -> tuple[dict[str, Any], str] | None:
    """The result of a tool turn that is written as `hermes.tool_response` does it, and its name; None for any other."""
    if not (value.startswith("<tool_response>\n") and value.endswith("\n</tool_response>")):
        return None
    try:
        said = _decode_result(value[len("<tool_response>\n") : -len("\n</tool_response>")])
        content = bytes(said.content).decode()
        if content[0] == '"':
            content = _decode_text(content)
        elif content[0] not in "{[":
            return None
    except _NO_FIELDS:
        return None
    result = {"role": "tool", "content": content, "tool_call_id": said.tool_call_id}
    return (result, said.name) if said.tool_call_id and tool_response(result, said.name) == value else None


def _notice(prompt: str) -> str:
    """What follows the generated prompt."""
    return prompt.partition(PROMPT_TAIL)[2].strip()


def _envelopes(value: str) -> list[dict[str, Any]]:
    """The results of a tool turn in the Hermes dialect; none if it is anything else."""
    said = [said for _, said in json_responses(value) or ()]
    return said if all(_is_envelope(one, least=2) for one in said) else []


def _enveloped(said: dict[str, Any]) -> dict[str, Any]:
    """What a result says in its envelope."""
    content = said["content"]
    result = {"content": to_json(content) if isinstance(content, dict | list) else content}
    return {**result, "tool_call_id": said["tool_call_id"]} if said.get("tool_call_id", "") != "" else result


def _content(texts: list[str], calls: list[dict[str, Any]]) -> str | None:
    content = "".join(texts)
    if not calls:
        return content
    content = content.removesuffix("\n")
    return content if content.strip() else None


def _in_order(texts: list[str], calls: list[dict[str, Any]]) -> list[str | dict[str, Any]]:
    """Texts and calls as they follow one another; the line breaks that part them belong to neither."""
    first, *rest = texts
    pieces: list[str | dict[str, Any]] = [first.removesuffix("\n")]
    for at, (call, text) in enumerate(zip(calls, rest, strict=True), start=1):
        pieces += [call, text.removeprefix("\n").removesuffix("\n" if at < len(calls) else "")]
    return [piece for piece in pieces if piece]


def _block(piece: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    function = piece["function"]
    more = {"extra": piece["extra"]} if "extra" in piece else {}
    return {"type": "tool_use", "id": piece["id"], "name": function["name"], "input": function["arguments"], **more}


def _split_think(value: str, style: str) -> tuple[str, str]:
    """The reasoning, and the rest. A block that would not be written back as it stands stays in the rest."""
    if not value.startswith("<think>\n"):
        return "", value
    if style == "hermes" and (empty := _EMPTY_THINK.match(value)):
        rest = value[empty.end() :]
        return ("", value) if "<think>" in rest else ("", rest)
    closing = _THINK_END.search(value, len("<think>\n"))
    reasoning = value[len("<think>\n") : closing.start()] if closing else ""
    if closing is None or not reasoning or reasoning.isspace():
        return "", value
    blank_line = style == "llamafactory" and value.startswith("\n", closing.end())
    return reasoning, value[closing.end() + blank_line :]


def _split_calls(text: str, exact: bool) -> tuple[list[str], list[tuple[dict[str, Any], str]]]:
    """The texts around the tool calls, one more than there are calls, and the calls (`_call`).

    What is tagged as a call and is none stays text. A line break after a call is part of the text only if `exact`.
    """
    thought = text.find("</think>") if text.startswith("<think>") else -1
    texts: list[str] = []
    calls: list[tuple[dict[str, Any], str]] = []
    done = 0
    opening = _CALL.search(text, max(thought, 0))
    while opening:
        call, end = _call_at(text, opening.end(), exact)
        if call:
            calls.append(call)
            texts.append(text[done : opening.start()])
            done = end if exact or not text.startswith("\n", end) else end + 1
        opening = _CALL.search(text, end)
    return [*texts, text[done:]], calls


def _call_at(text: str, at: int, exact: bool) -> tuple[tuple[dict[str, Any], str] | None, int]:
    """The call whose JSON begins here (`_call`) and the end of its block; None and where to go on if it is none."""
    end = text.find("\n</tool_call>", at)
    if end >= 0 and (call := _call(text[at:end], exact)):
        return call, end + len("\n</tool_call>")
    try:
        end = _value_at(text, at)[1]
    except (ValueError, RecursionError):
        return None, at
    closing = _CALL_END.match(text, end)
    call = _call(text[at:end], exact) if closing else None
    return (call, closing.end()) if call and closing else (None, at)


def _call(body: str, exact: bool) -> tuple[dict[str, Any], str] | None:
    """The call that a JSON object says, and its arguments as Python writes JSON; None if it is none."""
    try:
        usual = _decode_call(body)
        said: Any = {"name": usual.name}
        arguments = bytes(usual.arguments).decode()
    except _NO_FIELDS:
        try:
            said = json.loads(body, parse_constant=_refuse)
            arguments = _arguments(body, said)
        except _NO_FIELDS:
            return None
    written = rewritten(arguments)
    if written is None or not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    function = {"name": said.pop("name"), "arguments": written if has_sealed(arguments) else arguments}
    call: dict[str, Any] = {"id": None, "type": "function", "function": function}
    if isinstance(said.get("id"), str):
        call["id"] = said.pop("id")
    if said and exact:
        call["extra"] = said
    return call, written


def _arguments(body: str, said: Any) -> str:
    """The arguments of a call as its text has them; takes them out of what it says."""
    if not isinstance(said, dict) or "arguments" not in said:
        return "{}"
    value = said.pop("arguments")
    try:
        return bytes(_decode_fields(body)["arguments"]).decode()
    except _NO_FIELDS:  # what msgspec does not read, such as a lone surrogate
        return to_json(value)


def _raw_results(value: str, expected: int) -> list[str]:
    """The raw text of a tool turn, or its texts where there are as many as there were calls."""
    if not (value.startswith("<tool_response>") and value.endswith("</tool_response>")):
        return [value]
    text = value.removeprefix("<tool_response>").removesuffix("</tool_response>")
    text = text.removeprefix("\n").removesuffix("\n")
    texts = _NEXT_RESULT.split(text) if expected > 1 else []
    return texts if texts and len(texts) == expected else [text]
