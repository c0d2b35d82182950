"""The presets `hermes` and `sharegpt`: trajectories as such, one conversation a line.

Every turn says in `train` whether it was sampled in this context and is to be trained, and `trained_turns` lists those
turns; a trainer that knows no mask and takes all gpt turns trains the others off-policy. Which trainers take these
rows, and how, is said beside them.

The Hermes form replaces the conversation's system prompt by a generated one and gives every reply a think block. So
most rows differ from what the model saw, and say so: `on_policy` is false, `off_policy` says why. The row is on-policy
if the model was really asked in this form (the hermes tool protocol, no system prompt of its own, a thought in every
reply). With `--system own` the system prompt that the model saw is written instead, and the tools stand in `tools`.
`tests/formats/test_presets_text.py` proves it.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from stemma.formats.api import text_of
from stemma.formats.axolotl import hermes_mapping
from stemma.formats.entries import Columns, shaped_metadata
from stemma.formats.export import Preset, Written, compact_json
from stemma.formats.hermes import REWRITTEN, Turn, calls_of, is_respelled, sharegpt_entry, system_prompt
from stemma.formats.markers import Finding, find_markers
from stemma.formats.openai import DEVELOPER, markers_of_tools
from stemma.formats.training import LeftOut, TrainingRow

SYSTEM_REPLACED = "system prompt replaced"
EMPTY_THOUGHT = "empty think block added"

_README = """# {file}

Trajectories in the Hermes form: `from` is system, human, gpt or tool; reasoning stands in <think>, calls in
<tool_call>, results in <tool_response>. `train` is true for the gpt turns that a model sampled in exactly this
context; `trained_turns` lists them.

axolotl takes these rows with the mapping in `axolotl.yml`, which trains the turns whose `train` is true and no others.
TRL, LLaMA-Factory and unsloth do not: export with `--for trl`, `--for llamafactory` or `--for unsloth` instead.
"""


def _hermes(row: TrainingRow) -> list[Written]:
    turns = row.turns()
    _check_results(row)
    differs = [SYSTEM_REPLACED] if _seen_system(row) != [turns[0]["value"]] else []
    return [_written(row, {"conversations": turns}, [*differs, *_hermes_differences(row, turns)])]


def _hermes_own(row: TrainingRow) -> list[Written]:
    _check_results(row)
    turns = row.turns()[1:]
    system = _seen_system(row)
    if _has_system_inside(row):
        raise LeftOut("system message inside", "the Hermes form has its system prompt at the beginning")
    if system:
        turns = [{"from": "system", "value": "\n\n".join(system)}, *turns]
    record = {"conversations": turns, "tools": compact_json(row.tools or []), "style": "hermes"}
    return [_written(row, record, [*_hermes_differences(row, turns)])]


def _sharegpt(row: TrainingRow) -> list[Written]:
    entry = sharegpt_entry(row.messages, row.tools)
    differs = [DEVELOPER] if any(message.get("role") == "developer" for message in row.messages) else []
    return [_written(row, entry, [*differs, *_respelled(row)])]


def _written(row: TrainingRow, entry: dict[str, Any], differs: list[str]) -> Written:
    replies = [at for at, message in enumerate(row.messages) if message.get("role") == "assistant"]
    gpt_turns = [n for n, turn in enumerate(entry["conversations"]) if turn["from"] == "gpt"]
    trained = {turn for at, turn in zip(replies, gpt_turns, strict=True) if at in row.trained}
    record = entry | {
        "conversations": [{**turn, "train": n in trained} for n, turn in enumerate(entry["conversations"])],
        "timestamp": row.timestamp,
        "completed": row.completed,
        "metadata": shaped_metadata(row.metadata, Columns()),
        "trained_turns": sorted(trained),
    }
    return Written(record, row.trained, tuple(differs))


def _check_results(row: TrainingRow) -> None:
    """That every tool result follows its call: the Hermes form has no turn for any other."""
    answering = False
    for at, message in enumerate(row.messages):
        role = message.get("role")
        if role == "tool" and not answering:
            raise LeftOut("result without a call", f"message {at} is a tool's, and no call stands before it")
        if role != "assistant":
            answering = answering and role == "tool"
        elif isinstance(message.get("content"), list):
            answering = bool(calls_of(message))
        else:
            answering = bool(message.get("tool_calls"))


def _seen_system(row: TrainingRow) -> list[str]:
    """The system prompts that the model saw, the tools of the hermes protocol among them."""
    own = [text_of(m.get("content")) for m in row.messages if m.get("role") in ("system", "developer")]
    if not (row.tools and _asked_in_hermes(row)):
        return own
    return ["\n\n".join([system_prompt(row.tools), *own])]


def _asked_in_hermes(row: TrainingRow) -> bool:
    return all(reply.call.extra.get("protocol") == "hermes" for reply in row.replies)


def _has_system_inside(row: TrainingRow) -> bool:
    roles = [message.get("role") in ("system", "developer") for message in row.messages]
    return any(later and not earlier for earlier, later in pairwise(roles))


def _hermes_differences(row: TrainingRow, turns: list[Turn]) -> Iterator[str]:
    if any(turn["from"] == "gpt" and turn["value"].startswith("<think>\n</think>") for turn in turns):
        yield EMPTY_THOUGHT
    yield from _respelled(row)


def _respelled(row: TrainingRow) -> Iterator[str]:
    raw = any("raw" in reply.call.extra for reply in row.replies)
    if raw or any(is_respelled(row.messages[reply.at]) for reply in row.replies):
        yield REWRITTEN


def _markers(record: Mapping[str, Any]) -> list[Finding]:
    """Those in turns, whose JSON bodies are sealed, and in the tools beside them, which are not."""
    turns = record["conversations"]
    own = turns[:1] if turns[0]["from"] == "system" else []
    if record.get("style") == "hermes":  # Hermes turns below the conversation's own system prompt
        turns = [{"from": "system", "value": system_prompt(None)}, *turns[len(own) :]]
        return find_markers(own) + find_markers(turns) + markers_of_tools(record["tools"])
    return find_markers(turns) + markers_of_tools(record.get("tools"))


def _sidecars(file: str) -> dict[str, str]:
    return {"README.md": _README.format(file=file), **hermes_mapping(file)}


HERMES = Preset(name="hermes", convert=_hermes, sidecars=_sidecars, markers=_markers, style="hermes")
HERMES_OWN = Preset(name="hermes", convert=_hermes_own, sidecars=_sidecars, markers=_markers, style="hermes")
SHAREGPT = Preset(name="sharegpt", convert=_sharegpt, markers=_markers, style="sharegpt")
