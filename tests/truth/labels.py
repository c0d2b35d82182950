"""The labels that a real trainer made of an export, read as rows for the same judge.

`TEMPLATE` is a chat template that writes every field it is given and hides nothing, so that its text can be read back
into turns. A turn is trained if the labels of all its tokens are, from the first one after its head to the one that
ends it; labels on a part of it, on its head, or on nothing but its end, are told as problems.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from truth.conversations import World, drawn, every_shape
from truth.judge import Fault, duty
from truth.paths import export, judge_text
from truth.readers import CALL, Export, Row, Turn, receipts_of, records, report_of
from truth.shapes import MARK, ToolCall

START, END = "<|im_start|>", "<|im_end|>"

_BODY = (
    "{%- if message.reasoning_content %}{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n' }}{% endif %}"
    "{{- message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}{{ '<tool_call>\\n' }}"
    "{{- {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}"
    "{{- '\\n</tool_call>' }}{% endfor %}"
)
TEMPLATE = (
    "{%- if tools %}{{ '<|im_start|>tools\\n' }}{{ tools | tojson }}{{ '<|im_end|>\\n' }}{% endif %}"
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'assistant' %}{% generation %}"
    + _BODY
    + "{{ '<|im_end|>\\n' }}{% endgeneration %}{% else %}{{ message.content }}{{ '<|im_end|>\\n' }}{% endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
UNMARKED = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
"""The same without marks for the model's turns, for trainers that need none."""


def world_for_trainers(amount: int = 60) -> World:
    """Every shape, and some that hypothesis draws."""
    world = World()
    for script in [*every_shape(), *drawn(amount, start=7)]:
        world.build(script)
    return world


def exported(world: World, preset: str, folder: Path) -> Path:
    """The rows of a world for a preset."""
    folder.mkdir(parents=True, exist_ok=True)
    return export(world.save(folder / "world.db"), preset, folder / preset)


def judge_labels(
    world: World, preset: str, folder: Path, prepared: Iterable[tuple[list[int], list[int]]], words: Any
) -> list[Fault]:
    """Judge what a trainer made of an export: for each row its ids and its labels."""
    written = list(records(folder))
    rows = [_row(number, ids, labels, words, written) for number, (ids, labels) in enumerate(prepared)]
    path = "labels"
    lost = [Fault("the trainer drops rows", preset, path, "", "", f"{len(written)} written, {len(rows)} prepared")]
    found = Export(preset, folder, rows, report_of(folder), receipts_of(folder))
    return (lost if len(rows) != len(written) else []) + judge_text(world, found, path, parsed=True)


def _row(number: int, ids: list[int], labels: list[int], words: Any, written: list[dict[str, Any]]) -> Row:
    start, end = words.convert_tokens_to_ids([START, END])
    turns, problems, tools = [], list[str](), ""
    for ids_of_turn, labels_of_turn in _split(ids, labels, start):
        role, body, trained, problem = _turn(ids_of_turn, labels_of_turn, words, end)
        if problem:
            problems.append(problem)
        if role in ("tools", "system"):  # some templates write the tools into the system turn
            tools += body
        if role == "tools":
            continue
        calls = [json.loads(one) for one in CALL.findall(body)] if role == "assistant" else []
        text = CALL.sub("", body) if role == "assistant" else body
        turns.append(Turn(role, text, tuple(ToolCall(one["name"], one["arguments"]) for one in calls), trained))
    record = written[number] if number < len(written) else {}
    return Row(number, tuple(turns), tools, record, tuple(dict.fromkeys(problems)))


def _split(ids: list[int], labels: list[int], start: int) -> list[tuple[list[int], list[int]]]:
    places = [at for at, token in enumerate(ids) if token == start]
    return [(ids[at:to], labels[at:to]) for at, to in zip(places, [*places[1:], len(ids)], strict=True)]


def _turn(ids: list[int], labels: list[int], words: Any, end: int) -> tuple[str, str, bool, str]:
    """The role, what is said, whether it is trained, and what is wrong with its labels."""
    role = words.decode(ids[1:]).partition("\n")[0]
    head = 1 + len(words.encode(f"{role}\n", add_special_tokens=False))
    last = next((at for at, token in enumerate(ids) if token == end), len(ids))
    on = [label != -100 for label in labels[head : last + 1]]
    body = words.decode(ids[head:last])
    if any(label != -100 for label in labels[:head]):
        return role, body, any(on), "the head of a turn is trained"
    if any(on) and not all(on):
        some = words.decode([token for token, lit in zip(ids[head : last + 1], on, strict=True) if lit])
        return role, body, len(on) > 1 and any(on[:-1]), f"only a part of a turn is trained: {_shape(some)}"
    return role, body, any(on), ""


def _shape(text: str) -> str:
    """A text without what differs from one conversation to the next, so that faults can be counted."""
    return re.sub(r"\d+", "N", text)[:60]


# ── any template ─────────────────────────────────────────────────────────────────────────────────────────────


def judge_marks(world: World, preset: str, folder: Path, trained: Iterable[str], template: str) -> list[Fault]:
    """Judge by marks alone, whatever a template writes: `trained` are the texts that carry loss, a row each."""
    faults: list[Fault] = []

    def fault(problem: str, mark: str, text: str) -> None:
        faults.append(Fault(problem, preset, f"labels, {template}", "", mark, text[:300]))

    seen: Counter[str] = Counter()
    for text in trained:
        marks = MARK.findall(text)
        seen.update(marks)
        for mark in marks:
            if mark[0] != "S":
                fault("text is trained that nobody sampled", mark, text)
    for mark, times in seen.items():
        if times > 1:
            fault("sampled text is trained more than once", mark, f"{times} times")
    excluded = {line.get("made") for line in receipts_of(folder) if line.get("type") == "excluded"}
    for reply in world.replies:
        missing = [mark for mark in reply.spoken.marks() if not seen[mark]]
        if missing and reply.made not in excluded:
            fault("sampled text is not trained", reply.mark or "", f"{missing} of {reply.spoken.message}")
        if seen[reply.mark or ""] and duty(reply, preset) == "leave out":
            fault("a reply is trained that must be left out", reply.mark or "", str(reply.traits))
    return faults
