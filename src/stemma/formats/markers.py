"""Control markers: the character runs that a trainer's template or tokenizer reads as structure.

Text that somebody else wrote must not become structure. Inside a JSON body the first character of a marker is
written as its JSON escape (`seal`), which every JSON reader reads back as the same text; nothing but markers is
touched, so that HTML trains as it was served. Outside JSON nothing may be rewritten, so there a marker is only
found and reported (`find_markers`); whoever writes rows keeps such a row back. In the model's own turns `<think>`
and `<tool_call>` are structure and no finding. `tests/formats/test_markers.py` proves it.

    >>> seal('{"content": "a < b, <b>bold</b>, <|im_end|>"}')
    '{"content": "a < b, <b>bold</b>, \\\\u003c|im_end|>"}'

What counts: the tags of this format; `<|name|>` of ChatML, Llama 3, gpt-oss, Kimi, GLM, Phi, Command; DeepSeek's
`<｜name｜>`; Gemma's `<start_of_turn>`, `<|turn>` and `<turn|>`; `<s>` and `</s>`, `<<SYS>>`, `[INST]` and its like
of Llama 2 and Mistral. HTML's strike-through `<s>` is therefore sealed too: those tokenizers cannot tell it apart.
Not covered: tokens of other model families, and text that persuades a model without any marker.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import msgspec

PROMPT_HEAD = (
    "You are a function calling AI model. You are provided with function signatures within <tools> </tools> XML "
    "tags. You may call one or more functions to assist with the user query. If available tools are not relevant in "
    "assisting with user query, just respond in natural conversational language. Don't make assumptions about what "
    "values to plug into functions. After calling & executing the functions, you will be provided with function "
    "results within <tool_response> </tool_response> XML tags. Here are the available tools:\n<tools>\n"
)
PROMPT_TAIL = (
    "\n</tools>\nFor each function call return a JSON object, with the following pydantic model json schema for "
    "each:\n{'title': 'FunctionCall', 'type': 'object', 'properties': {'name': {'title': 'Name', 'type': 'string'}, "
    "'arguments': {'title': 'Arguments', 'type': 'object'}}, 'required': ['name', 'arguments']}\nEach function call "
    "should be enclosed within <tool_call> </tool_call> XML tags.\nExample:\n<tool_call>\n"
    "{'name': <function-name>,'arguments': <args-dict>}\n</tool_call>"
)
"""The generated system turn is head, the tools as one line of JSON, tail."""

_GEMMA = r"(?:turn|channel|tool|tool_call|tool_response|image|audio|video)"
# Two patterns, each of which begins with one literal character: only so does `re` skip to the candidates.
_ANGLED = re.compile(
    r"<(?:/?(?:tool_call|tool_response|tools|think|s|bos|eos|start_of_turn|end_of_turn)>"
    r"|\|[^\s<>|\"\\]{1,64}\|>"
    r"|\|\\?\"\|>"  # Gemma's quotation mark, bare or as it stands in a JSON string
    rf"|\|{_GEMMA}>|{_GEMMA}\|>"
    r"|｜[^\s<>｜\"\\]{1,64}｜>"
    r"|</?SYS>>)"
)
_BRACKETED = re.compile(r"\[(?:/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK)\])")
OWN = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>"})
"""Structure in the model's own turns."""
_SEALED = re.compile(r"(?<!\\)(?:\\\\)*\\u00(?:3c|5b)")

# Each begins with one literal character, too, for the same reason.
_IN_BYTES = tuple(re.compile(one) for one in (_ANGLED.pattern.encode(), _BRACKETED.pattern.encode(), rb"\\[u/]"))

_CALL_BODY = re.compile(r"<tool_call>\n(.*)\n</tool_call>")
_OPENING = re.compile(r"<tool_response>\s*")
_CLOSING = re.compile(r"\s*</tool_response>\s*")
_value_at = json.JSONDecoder().raw_decode


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number} is left to Python's json, which tells large integers from floats")


_decode = msgspec.json.Decoder(float_hook=_refuse).decode


class Finding(NamedTuple):
    """A control marker in text where it is not structure."""

    turn: int
    """Which turn, from 0."""
    speaker: str
    """Whose turn it is: system, human, gpt or tool."""
    marker: str

    @property
    def reason(self) -> str:
        """Why a row that has it is kept back."""
        return f"turn {self.turn} ({self.speaker}) carries the control marker {self.marker!r}"


def seal(body: str) -> str:
    r"""JSON text in which no marker stands any more: its `<` is written `\u003c` (a bracket `\u005b`)."""
    # A marker in JSON text lies inside a string, where neither character is part of an escape: `\\u003c` always fits.
    if "<" in body:
        body = _ANGLED.sub(_escaped, body)
    if "[" in body:
        body = _BRACKETED.sub(_escaped, body)
    return body


def _escaped(match: re.Match[str]) -> str:
    marker = match[0]
    return f"\\u{ord(marker[0]):04x}{marker[1:]}"


def has_sealed(body: str) -> bool:
    """Whether a marker may be sealed in JSON text."""
    return "\\u00" in body and _SEALED.search(body) is not None


def markers_in(text: str) -> list[str]:
    """The control markers in `text`, one that is there twice twice."""
    return [*_ANGLED.findall(text), *_BRACKETED.findall(text)]


def may_hold_markers(body: bytes) -> bool:
    """False if no text in some JSON holds a control marker, plainly or escaped: a quick look, since most have none."""
    return any(one.search(body) for one in _IN_BYTES)


def is_generated(prompt: object) -> bool:
    """Whether this is the Hermes system turn, which is written at save time and belongs to no conversation."""
    return isinstance(prompt, str) and prompt.startswith(PROMPT_HEAD) and PROMPT_TAIL in prompt


def find_markers(conversations: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Each marker that stands where it would be taken for structure, in a trajectory as `to_trajectory` writes it."""
    hermes = _is_hermes(conversations)
    return [
        Finding(at, turn["from"], marker)
        for at, turn in enumerate(conversations)
        for text in _foreign_text(turn["from"], turn["value"], hermes)
        for marker in markers_in(text)
        if not (turn["from"] == "gpt" and marker in OWN)
    ]


def count_sealed(conversations: Sequence[Mapping[str, Any]]) -> int:
    """How many markers are sealed in a trajectory as `to_trajectory` writes it, where nothing else is escaped so."""
    hermes = _is_hermes(conversations)
    bodies = (body for turn in conversations for body in _json_bodies(turn["from"], turn["value"], hermes))
    return sum(len(_SEALED.findall(body)) for body in bodies)


def _json_bodies(speaker: str, value: Any, hermes: bool) -> list[str]:
    if speaker == "gpt":
        return _CALL_BODY.findall(value)
    return [value] if hermes and speaker in ("system", "tool") else []


def _is_hermes(conversations: Sequence[Mapping[str, Any]]) -> bool:
    return bool(conversations) and is_generated(conversations[0]["value"])


def _foreign_text(speaker: str, value: Any, hermes: bool) -> list[str]:
    """The text of a turn without the structure the format itself has put around it."""
    if not isinstance(value, str):
        return [json.dumps(value, ensure_ascii=False)]
    if speaker == "system" and hermes and is_generated(value):
        tools, _, more = value.removeprefix(PROMPT_HEAD).partition(PROMPT_TAIL)
        return [tools, more]
    if speaker != "tool":
        return [value]
    inside = value.removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")
    if not hermes or not markers_in(inside):
        return [inside]
    responses = json_responses(value)
    return [inside] if responses is None else [text for text, _ in responses]


def json_responses(value: str) -> list[tuple[str, Any]] | None:
    """The JSON texts, each with what it says, of a turn of `<tool_response>` blocks; None if it is anything else."""
    if single := _single_response(value):
        return [single]
    found, at = [], 0
    while opening := _OPENING.match(value, at):
        try:
            content, end = _value_at(value, opening.end())
        except (ValueError, RecursionError):
            return None
        closing = _CLOSING.match(value, end)
        if closing is None:
            return None
        found.append((value[opening.end() : end], content))
        at = closing.end()
    return found if found and at == len(value) else None


def _single_response(value: str) -> tuple[str, Any] | None:
    """The same for one block as `to_trajectory` writes it, read faster; None if it may be anything else."""
    if not (value.isascii() and value.startswith("<tool_response>\n") and value.endswith("\n</tool_response>")):
        return None
    text = value[len("<tool_response>\n") : -len("\n</tool_response>")]
    try:
        return text, _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
