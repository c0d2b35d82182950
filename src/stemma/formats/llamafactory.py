"""Presets `llamafactory` and `llamafactory-turns`: rows for LLaMA-Factory's `formatting: sharegpt`.

    {"conversations": [{"from", "value"}, …], "system": "…", "tools": "JSON text, or nothing", "trained_turns": […]}

`trained_turns` says which turns are trained to whoever reads the file again; LLaMA-Factory does not look at it.
Turns alternate strictly: human or observation, then gpt or function_call. LLaMA-Factory passes over any other row, so
one that cannot be said in this way is left out here, with its reason. It has two masks, for a whole run: all turns of
the model are trained, or the last one of each row (`mask_history`). Hence two presets:

    llamafactory         `mask_history: false`; a row in which a turn of the model is context is left out, for it would
                         be trained; the reason names the other preset
    llamafactory-turns   `mask_history: true`; a row for each trained turn, which is its last. Says everything, but each
                         prefix is computed as often as it has replies

`llamafactory.yml` and `dataset_info.json` beside the rows say which. A turn of the model is

    gpt             <think>⏎reasoning⏎</think>⏎⏎text          the think block only where there was reasoning
    function_call   [{"name": …, "arguments": {…}}, …]        a call without a word; the only form that Mistral's take
                    <think>…</think>⏎⏎text⏎<tool_call>⏎[…]⏎</tool_call>

with line breaks as LLaMA-Factory's own `thought_words` have them, so that it finds a thought where it wants to remove
one, and as Qwen 3's template writes them. Control markers in the JSON are sealed: LLaMA-Factory looks for the end of
the calls with a pattern, and a `</tool_call>` among the arguments would be it.

Merged are messages between two turns of the model, since there can be only one turn: results as LLaMA-Factory's own
converter of OpenAI messages joins them; questions by a blank line; results and a question to a human turn, the results
in `<tool_response>` tags, so that the question does not become something that a tool has said.
Not merged but left out: two turns of the model in a row (the end of the first was sampled, too), a system message that
is not at the beginning, and a conversation that the model begins. What follows the last trained message is cut.

Not covered: text with `<image>`, `<video>` or `<audio>` stops a run with a vision template, unless LLaMA-Factory's
IMAGE_PLACEHOLDER and its like are set in the environment; calls with words stop Mistral's and LFM2's templates;
with `llamafactory-turns`, templates without an end token of their own (GLM) train the end of context turns as well.
`tests/trainers/llamafactory` decodes LLaMA-Factory's labels and compares them with the trained messages.
"""

import json
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from stemma.formats.export import Preset, Written, compact_json
from stemma.formats.markers import seal
from stemma.formats.openai import arguments_of, raw_markers, text_differences, text_messages
from stemma.formats.training import LeftOut, TrainingRow

DATASET = "stemma"
"""The name of the dataset in `dataset_info.json`."""

CONFIG = """\
# For rows of `stemma export --for {preset}`: copy this into your LLaMA-Factory config.
dataset_dir: .  # the folder of this file
dataset: {dataset}  # as dataset_info.json names it
{mask}
train_on_prompt: false
cutoff_len: 131072  # longer rows are cut; LLaMA-Factory's own limit is 2048 tokens
enable_thinking: null  # before a turn without a thought, a reasoning template's empty one is not trained
"""
ALL_TURNS = "mask_history: false  # every turn of the model is trained"
LAST_TURN = """\
mask_history: true  # the last turn of each row is trained
preserve_thinking: true  # thoughts of earlier turns stay, as in the rows"""


class Turn(NamedTuple):
    """A turn as LLaMA-Factory has it."""

    speaker: str
    value: str
    trained: bool = False
    merged: bool = False
    """Whether several messages of others than tools have become one."""


Message = dict[str, Any]


MERGED = "messages between two replies merged"
"""How its context differs from what the model saw."""


def whole_row(row: TrainingRow) -> list[Written]:
    """The row, if all its turns of the model are trained."""
    system, turns = _system_and_turns(row)
    for turn in turns[1::2]:
        if not turn.trained:
            raise LeftOut("context turn of the model", "it would be trained; `llamafactory-turns` writes such rows")
    return [
        Written(
            _record(row, system, turns, whole=True),
            row.trained,
            _differences(row, turns, row.trained[-1]),
            _scanned(row),
        )
    ]


def turn_rows(row: TrainingRow) -> list[Written]:
    """A row for each trained turn, which ends it."""
    system, turns = _system_and_turns(row)
    places = [at for at, turn in enumerate(turns) if turn.trained]
    scanned = _scanned(row)
    return [
        Written(
            _record(row, system, turns[: at + 1], whole=False),
            (message,),
            _differences(row, turns[: at + 1], message),
            scanned,
        )
        for at, message in zip(places, row.trained, strict=True)
    ]


def _scanned(row: TrainingRow) -> dict[str, Any]:
    """The messages: what is sealed in a record is bare again once LLaMA-Factory has read it."""
    return {"messages": text_messages(row), "tools": row.tools}


def _differences(row: TrainingRow, turns: list[Turn], last: int) -> tuple[str, ...]:
    return text_differences(row, last) + ((MERGED,) if any(turn.merged for turn in turns) else ())


def _record(row: TrainingRow, system: str, turns: list[Turn], *, whole: bool) -> dict[str, Any]:
    conversations = [{"from": turn.speaker, "value": turn.value} for turn in turns]
    # No tools is "": for "[]" LLaMA-Factory writes an empty system turn.
    tools = compact_json([_complete(tool) for tool in row.tools]) if row.tools else ""
    trained = [at for at, turn in enumerate(turns) if turn.trained and (whole or at == len(turns) - 1)]
    return {"conversations": conversations, "system": system, "tools": tools, "trained_turns": trained}


def _complete(tool: Message) -> Message:
    """The tool with `parameters.properties`, without which LLaMA-Factory's default tool format stops."""
    function = tool.get("function") or tool
    parameters = function.get("parameters") or {}
    if "properties" in parameters:
        return tool
    function = {**function, "parameters": {"type": "object", "properties": {}, **parameters}}
    return {**tool, "function": function} if "function" in tool else function


def _system_and_turns(row: TrainingRow) -> tuple[str, list[Turn]]:
    messages, trained = text_messages(row), set(row.trained)
    start = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    system = "\n\n".join(message["content"] for message in messages[:start])
    turns: list[Turn] = []
    for of_model, group in groupby(range(start, len(messages)), lambda at: messages[at]["role"] == "assistant"):
        places = list(group)
        turns.append(_model_turn(messages, places, trained) if of_model else _prompt_turn(messages, places))
    if messages[start]["role"] == "assistant":
        raise LeftOut("no prompt", f"message {start}, the first, is the model's; LLaMA-Factory wants a question")
    return system, turns


def _prompt_turn(messages: list[Message], places: list[int]) -> Turn:
    """All that stands between two turns of the model."""
    texts = [(messages[at]["role"], messages[at]["content"]) for at in places]
    roles = {role for role, _ in texts}
    if "system" in roles:
        raise LeftOut("system message inside", f"one of the messages {places[0]} to {places[-1]} is a system message")
    if roles == {"tool"}:
        return Turn("observation", "\n</tool_response>\n<tool_response>\n".join(text for _, text in texts))
    if roles == {"user"}:
        return Turn("human", "\n\n".join(text for _, text in texts), merged=len(texts) > 1)
    tagged = [f"<tool_response>\n{text}\n</tool_response>" if role == "tool" else text for role, text in texts]
    return Turn("human", "\n".join(tagged), merged=True)


def _model_turn(messages: list[Message], places: list[int], trained: set[int]) -> Turn:
    if len(places) > 1:
        raise LeftOut("two turns of the model in a row", f"messages {places[0]} and {places[1]}")
    at = places[0]
    message = messages[at]
    reasoning, content = message.get("reasoning_content"), message["content"]
    said = f"<think>\n{reasoning}\n</think>\n\n{content}" if reasoning else content
    calls = [_call(call, at) for call in message.get("tool_calls", [])]
    if not calls:
        return Turn("gpt", said, at in trained)
    body = seal(compact_json(calls))
    if said:
        body = _after_words(said, body, gap="\n" if content else "", at=at)
    return Turn("function_call", body, at in trained)


def _after_words(said: str, body: str, *, gap: str, at: int) -> str:
    if "<tool_call>" in said:
        raise LeftOut("tool call in the text", f"message {at} has calls and says '<tool_call>' as well")
    return f"{said}{gap}<tool_call>\n{body}\n</tool_call>"


def _call(call: Message, at: int) -> Message:
    return {"name": call["function"]["name"], "arguments": arguments_of(call, at)}


def _sidecars(preset: str, mask: str) -> Callable[[str], dict[str, str]]:
    def files(data_file: str) -> dict[str, str]:
        columns = {"messages": "conversations", "system": "system", "tools": "tools"}
        info = {DATASET: {"file_name": data_file, "formatting": "sharegpt", "columns": columns}}
        config = CONFIG.format(preset=preset, dataset=DATASET, mask=mask)
        return {"dataset_info.json": json.dumps(info, indent=2) + "\n", "llamafactory.yml": config}

    return files


LLAMAFACTORY = Preset(
    name="llamafactory",
    convert=whole_row,
    sidecars=_sidecars("llamafactory", ALL_TURNS),
    markers=raw_markers,
)
LLAMAFACTORY_TURNS = Preset(
    name="llamafactory-turns",
    convert=turn_rows,
    sidecars=_sidecars("llamafactory-turns", LAST_TURN),
    markers=raw_markers,
)
