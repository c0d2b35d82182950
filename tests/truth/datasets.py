"""Dataset files as other programs write them, and what is expected of an export that is made of them.

A file is all there is: a turn of the model is trained unless the file says otherwise (`weight` 0, `train` false), in
the context that its line shows. Nobody's exporter wrote these files: each line is put together here.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truth.conversations import Reply, Script, Talk, World
from truth.judge import UNKNOWN, Expected, Fault, TextJudge, expected_of
from truth.paths import at_place, export, imported, judge_again, labels_in, stemma
from truth.readers import Export, read_dataset, read_export
from truth.shapes import Spoken

KINDS = ("openai", "sharegpt", "hermes")


@dataclass
class Dataset:
    """A file and the replies in it."""

    kind: str
    file: Path
    replies: list[Reply]
    """`conversation` is the number of the line, `index` the place of the message in it."""

    def expected(self, preset: str) -> list[Expected]:
        return [_of_file(expected_of(reply, preset, self.columns(reply))) for reply in self.replies]

    def columns(self, reply: Reply) -> dict[str, Any]:
        number = {"difficulty": int(reply.conversation[1:])}
        return {**number, "origin": {"nested": ["column"]}} if self.kind == "openai" else number


def write(world: World, kind: str, folder: Path) -> Dataset:
    """The current lines of a world as a file of a kind."""
    lines: list[bytes] = []
    replies: list[Reply] = []
    for talk in world.talks:
        if "-fork" in talk.name or not talk.line or not (kind == "openai" or all(map(_simple, talk.line))):
            continue
        number = len(lines) + 1
        found = list(_replies(talk, number, kind))
        entry = _openai(talk, number) if kind == "openai" else _turns(talk, number, kind)
        try:
            lines.append(json.dumps(entry, ensure_ascii=False).encode())
        except UnicodeEncodeError:
            lines.append(json.dumps(entry).encode())
        replies += found
    file = folder / f"{kind}.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    return Dataset(kind, file, replies)


def _trained(spoken: Spoken) -> bool:
    return spoken.speaker == "assistant" and not any(mark[0] in "HE" for mark in spoken.marks())


def _replies(talk: Talk, number: int, kind: str) -> list[Reply]:
    trained = [_trained(spoken) for spoken in talk.line]
    linear = all(trained[at] for at, spoken in enumerate(talk.line) if spoken.speaker == "assistant")
    script = next((reply.script for reply in talk.recorded), Script("", "two", ()))
    tools = _tools(talk)
    return [
        Reply(
            conversation=f"#{number}", script=script, spoken=spoken, context=tuple(talk.line[:at]),
            sampled_context=tuple(trained[:at]), tools=tools, facts="plain", linear=linear,
            made=f"#{number}/{at}", index=at,
        )
        for at, spoken in enumerate(talk.line)
        if trained[at]
    ]  # fmt: skip


def _tools(talk: Talk) -> Any:
    return talk.recorded[-1].tools if talk.recorded else None


def _openai(talk: Talk, number: int) -> dict[str, Any]:
    messages = []
    for spoken in talk.line:
        message = dict(spoken.message)
        if spoken.speaker == "assistant" and not _trained(spoken):
            message["weight"] = 0
        elif spoken.speaker == "assistant" and number % 2:
            message["weight"] = 1
        messages.append(message)
    entry = {"messages": messages, "model": "m", "difficulty": number, "origin": {"nested": ["column"]}}
    return {**entry, "tools": tools} if (tools := _tools(talk)) else entry


def _simple(spoken: Spoken) -> bool:
    """Whether turns of text can say it."""
    content = spoken.message.get("content")
    known = spoken.message["role"] in ("system", "user", "assistant", "tool") and not spoken.traits
    return known and (isinstance(content, str) or (content is None and bool(spoken.calls)))


def _turns(talk: Talk, number: int, kind: str) -> dict[str, Any]:
    """Odd lines have their system text in a column, and say `weight`; even ones have a turn, and say `train`."""
    turns = [_turn(spoken, kind) for spoken in talk.line]
    for turn, spoken in zip(turns, talk.line, strict=True):
        if not _trained(spoken) and (spoken.speaker == "assistant" or number % 4 == 0):
            turn.update({"weight": 0} if number % 2 else {"train": False})
    entry: dict[str, Any] = {"conversations": turns, "model": "m", "difficulty": number}
    systems = [at for at, spoken in enumerate(talk.line) if spoken.speaker == "system"]
    if number % 2 and systems == [0]:
        entry["system"] = turns.pop(0)["value"]
    if tools := _tools(talk):
        entry["tools"] = json.dumps(tools, ensure_ascii=False)
    return entry


def _turn(spoken: Spoken, kind: str) -> dict[str, Any]:
    content = spoken.message.get("content") or ""
    if spoken.speaker == "tool":
        if kind == "hermes":
            result = {"tool_call_id": spoken.message.get("tool_call_id"), "name": "search", "content": content}
            content = json.dumps(result, ensure_ascii=False)
        return {"from": "tool", "value": f"<tool_response>\n{content}\n</tool_response>"}
    if spoken.speaker != "assistant":
        return {"from": {"user": "human"}.get(spoken.speaker, spoken.speaker), "value": content}
    if "<think>" not in content:
        thought = "".join(f"{one}\n" for one in spoken.reasoning)
        content = f"<think>\n{thought}</think>\n{content}" if thought or kind == "hermes" else content
    calls = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in spoken.calls]
    written = [f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls]
    return {"from": "gpt", "value": "\n".join([content.rstrip("\n"), *written] if content else written)}


def judge_dataset(dataset: Dataset, preset: str, out: Path) -> list[Fault]:
    """Export the file itself."""
    written = read_export(preset, export(dataset.file, preset, out))
    expected = dataset.expected(preset)
    places = {
        (int(reply.conversation[1:]), reply.index): one.label
        for reply, one in zip(dataset.replies, expected, strict=True)
    }
    path = f"{dataset.kind} dataset"
    return TextJudge(written, expected, path, lambda line: at_place(line, places)).judge()


def judge_imported_dataset(dataset: Dataset, store: Path, preset: str, out: Path) -> list[Fault]:
    """Export a store into which the file was imported."""
    if not store.exists():
        imported(dataset.file, store)
    written = read_export(preset, export(store, preset, out))
    expected = dataset.expected(preset)
    labels = labels_in(store)
    path = f"{dataset.kind} dataset → import"
    return TextJudge(written, expected, path, lambda line: labels.get(str(line.get("made")), [])).judge()


def _of_file(one: Expected) -> Expected:
    return replace(one, on_policy=None, content=None, raw=False, finish_reason=UNKNOWN)


def compressed(dataset: Dataset, folder: Path) -> Path:
    """The file with its long conversations summarised."""
    file = folder / f"{dataset.kind}_compressed.jsonl"
    how = ("--summarizer", "extractive", "--tokenizer", "estimate", "--budget", "40")
    stemma("compress", dataset.file, "--out", file, *how)
    return file


def judge_compressed_dataset(world: World, dataset: Dataset, file: Path, preset: str, out: Path) -> list[Fault]:
    """Export a compressed file: what is left of its turns is trained after what is left of their context."""
    left = Export(dataset.kind, file.parent, read_dataset(file), {})
    return judge_again(world, left, preset, out, file)
