"""A summary without a model: what was done, with which files and commands, what failed, what came out.

It is made of the turns' own words, the same for the same turns. Each section has its most telling lines first, and gets
as many as fit beside those of the others. `tests/compress/test_extractive.py` proves it.

    gpt   <tool_call>{"name": "terminal", "arguments": {"command": "pytest -q"}}</tool_call>
    tool  {"content": {"output": "1 failed", "exit_code": 1}}

    [CONTEXT SUMMARY]: The assistant made 1 call: terminal ×1.
    Commands:
    - terminal: pytest -q
    Failed:
    - 1 failed
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from stemma.compress.plan import Turn
from stemma.compress.summary import Summary, prefixed
from stemma.formats.markers import json_responses, seal

_TAGS = re.compile(r"</?tool_(?:response|call)>")
_FAILURE = re.compile(
    r"\b(?:\w*(?:Error|Exception)\b|error:|errors?\b|fatal|failed|failure|denied|not found|Traceback)"
)
_EXIT = re.compile(r'"?exit[ _]?code"?\W{1,3}(-?\d+)')
_COMMAND = ("command", "cmd", "code", "query")
_FILE = ("path", "file", "file_path", "filename")
_BRIEF = 160
"""Characters of one line that are told."""
_CHARS_A_TOKEN = 3
_LOOKED_AT = 1 << 16
"""Characters of one turn that are searched."""


class ExtractiveSummarizer:
    """Needs nothing, costs nothing, says the same each time."""

    name = "extractive"

    async def summarise(self, turns: Sequence[Turn], tokens: int) -> Summary:
        text = within(extract(turns), tokens * _CHARS_A_TOKEN)
        return Summary(text=prefixed(seal(text)), cost=0.0)


class Section(NamedTuple):
    """A title and the lines below it, the most telling first."""

    title: str
    lines: list[str]


def extract(turns: Sequence[Turn]) -> list[Section]:
    """All there is to say."""
    turns = [msgspec.structs.replace(turn, text=turn.text[:_LOOKED_AT]) for turn in turns]
    calls = [call for turn in turns if turn.role == "gpt" for call in _calls(turn.text)]
    results = [_Result(turn.text) for turn in turns if turn.role == "tool"]
    said = [_words(turn) for turn in turns if turn.role in ("gpt", "human")]
    return [
        Section(_actions(calls, turns), []),
        Section("Commands:", _each_once(_commands(calls))),
        Section("Files:", _each_once(_arguments(calls, _FILE))),
        Section("Failed:", _each_once([result.told for result in results if result.failed])),
        Section("Said:", _each_once(said[::-1])),
        Section("Results:", _each_once([result.told for result in results if not result.failed][::-1])),
    ]


def within(sections: Sequence[Section], longest: int) -> str:
    """The sections in about `longest` characters: a line of each in turn, while they fit.

    >>> print(within([Section("2 calls.", []), Section("Files:", ["a", "b"]), Section("Failed:", ["c"])], 40))
    2 calls.
    Files:
    - a
    - b
    Failed:
    - c
    """
    taken = [0] * len(sections)
    size = len(sections[0].title)
    for turn in range(max(len(section.lines) for section in sections)):
        for n, section in enumerate(sections):
            if turn < len(section.lines):
                size += len(section.lines[turn]) + 3 + (len(section.title) + 1 if turn == 0 else 0)
                if size > longest:
                    return _told(sections, taken)
                taken[n] += 1
    return _told(sections, taken)


def _told(sections: Sequence[Section], taken: Sequence[int]) -> str:
    told = [sections[0].title]
    for section, count in zip(sections, taken, strict=True):
        told += [section.title, *(f"- {line}" for line in section.lines[:count])] if count else []
    return "\n".join(told)


class _Result:
    """What a tool turn says."""

    def __init__(self, text: str) -> None:
        exit_code = _EXIT.search(text)
        body = _body(text)
        failure = _FAILURE.search(body)
        self.failed = (exit_code is not None and exit_code[1] != "0") or failure is not None
        start = failure.start() if failure else 0
        line = body[body.rfind("\n", 0, start) + 1 :] if failure else body
        self.told = _brief(line.partition("\n")[0] if failure else line)


def _body(text: str) -> str:
    """The contents of the results, without their envelopes."""
    said = [
        value.get("content", value) if isinstance(value, dict) else value for _, value in json_responses(text) or ()
    ]
    return "\n".join(_plain(value) for value in said) if said else _TAGS.sub(" ", text).strip()


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(_plain(item) for item in value.values())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _calls(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for block in _blocks(text, "tool_call")[1]:
        try:
            body = json.loads(block)
            arguments = body.get("arguments", {})
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError, AttributeError):
            continue
        if isinstance(body.get("name"), str):
            yield body["name"], arguments if isinstance(arguments, dict) else {}


def _blocks(text: str, tag: str) -> tuple[str, list[str]]:
    """The text outside the blocks of a tag, and what is inside each; found, not matched: text may be hostile."""
    outside, inside, at = [], [], 0
    while (start := text.find(f"<{tag}>", at)) >= 0 and (end := text.find(f"</{tag}>", start)) >= 0:
        outside.append(text[at:start])
        inside.append(text[start + len(tag) + 2 : end])
        at = end + len(tag) + 3
    return " ".join([*outside, text[at:]]), inside


def _actions(calls: list[tuple[str, dict[str, Any]]], turns: Sequence[Turn]) -> str:
    if not calls:
        return f"{len(turns)} turns without tool calls."
    names = ", ".join(f"{name} ×{count}" for name, count in Counter(name for name, _ in calls).most_common())
    return f"The assistant made {len(calls)} call{'s' if len(calls) > 1 else ''}: {names}."


def _commands(calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [f"{name}: {told}" for name, arguments in calls for told in _values(arguments, _COMMAND)]


def _arguments(calls: list[tuple[str, dict[str, Any]]], names: Sequence[str]) -> list[str]:
    return [told for _, arguments in calls for told in _values(arguments, names)]


def _values(arguments: dict[str, Any], names: Sequence[str]) -> list[str]:
    return [value for name in names if isinstance(value := arguments.get(name), str) and value]


def _words(turn: Turn) -> str:
    """What was said beside thoughts and calls; the last lines say where it came to."""
    return _blocks(_blocks(turn.text, "think")[0], "tool_call")[0].strip()


def _each_once(items: Sequence[str]) -> list[str]:
    return [brief for brief in dict.fromkeys(map(_brief, items)) if brief]


def _brief(text: str) -> str:
    line = " ".join(text[: 4 * _BRIEF].split())
    return line if len(line) <= _BRIEF else line[: _BRIEF - 1] + "…"
