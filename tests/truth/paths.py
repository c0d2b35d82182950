"""The ways from conversations to rows: each runs the real commands, and says what is expected at its end."""

import io
import json
import shutil
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from stemma import open_store
from stemma.cli.main import main
from truth.conversations import World
from truth.judge import (
    EVERY_TURN,
    UNKNOWN,
    Expected,
    Fault,
    TextJudge,
    duty,
    empty_label,
    expected_of,
    flat,
    judge_tokens,
    label_of,
)
from truth.readers import TOKEN_PRESETS, Export, Row, Turn, read_export, receipts_of, report_of, token_rows
from truth.shapes import MARK

IMPORTABLE = ("hermes", "sharegpt", "openai", "axolotl")
"""Presets whose rows can be read back."""


class CommandFailed(AssertionError):
    """A command that ended badly."""


def stemma(*arguments: object) -> str:
    """Run a command in this process; what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    if code:
        raise CommandFailed(
            f"stemma {' '.join(map(str, arguments))} ended with {code}:\n{err.getvalue()}{out.getvalue()}"
        )
    return out.getvalue()


def export(source: Path, preset: str, out: Path, *options: str) -> Path:
    stemma("export", source, "--for", preset, "--out", out, *options)
    return out


# ── store → preset ───────────────────────────────────────────────────────────────────────────────────────────


def judge_store(world: World, store: Path, preset: str, out: Path, path: str, *options: str) -> list[Fault]:
    """Export a store that holds a world, and judge it."""
    folder = export(store, preset, out, *options)
    if preset in TOKEN_PRESETS:
        written = Export(preset, folder, [], report_of(folder), receipts_of(folder))
        return judge_tokens(preset, path, token_rows(preset, folder), world, written)
    return judge_text(world, read_export(preset, folder), path, "--keep-truncated" in options)


def judge_text(
    world: World, written: Export, path: str, keep_truncated: bool = False, parsed: bool = False
) -> list[Fault]:
    """Judge an export of text that comes from a store with this world; `parsed` if a trainer has read arguments."""
    expected = [
        expected_of(one, written.preset, world.metadata.get(one.conversation), keep_truncated) for one in world.replies
    ]
    expected = [replace(one, raw=False) for one in expected] if parsed else expected
    labels: dict[str, list[str]] = {}
    for one, known in zip(world.replies, expected, strict=True):
        labels.setdefault(one.made, []).append(known.label)
    return TextJudge(written, expected, path, lambda line: labels.get(str(line.get("made")), [])).judge()


# ── two stores merged, and a store compressed ────────────────────────────────────────────────────────────────


def merged(world: World, folder: Path) -> Path:
    """The conversations of a world in two stores, some of them in both, and both merged into a third."""
    one, two, both = (folder / name for name in ("one.db", "two.db", "merged.db"))
    world.save(one, [talk for number, talk in enumerate(world.talks) if number % 3 != 1])
    # What both have is the same conversation because one store has it from the other.
    shutil.copy(one, two)
    world.save(two, [talk for number, talk in enumerate(world.talks) if number % 3 == 1])
    stemma("merge", both, one, two)
    stemma("merge", both, two)
    return both


def compressed(store: Path, folder: Path) -> Path:
    """A copy of a store in which every long conversation is summarised."""
    copy = folder / "compressed.db"
    shutil.copy(store, copy)
    stemma("compress", copy, "--summarizer", "extractive", "--tokenizer", "estimate", "--budget", "40")
    return copy


# ── rows of an export, read back ─────────────────────────────────────────────────────────────────────────────


def expected_of_rows(world: World, first: Export, preset: str) -> list[Expected]:
    """What a second export must say, if the first is all that is known."""
    by_label = {label_of(one.spoken.marks()): one for one in world.replies}
    found = []
    for row in first.rows:
        for at, turn in enumerate(row.turns):
            label = label_of(turn.marks()) if turn.trained else None
            if label is None or label not in by_label:
                continue  # what the first export says wrongly, its own judge has told
            reply = by_label[label]
            last = not any(later.trained for later in row.turns[at + 1 :])
            shown = flat((before.speaker, before.marks()) for before in row.turns[:at])
            whole = first.preset == "hermes" or shown == flat((one.speaker, one.marks()) for one in reply.context)
            both = {duty(reply, first.preset), duty(reply, preset)}
            found.append(
                replace(
                    expected_of(reply, preset),
                    tools=row.described(),
                    context=tuple((before.speaker, before.marks()) for before in row.turns[:at]),
                    duty="train" if whole and both == {"train"} and _fits_again(row.turns[:at], preset) else "either",
                    content=None,
                    pieces=(),
                    columns=_columns(row),
                    on_policy=None,
                    raw=False,
                    finish_reason=row.record.get("finish_reason") or None if last else UNKNOWN,
                )
            )
    return found


def _columns(row: Row) -> tuple[tuple[str, Any], ...]:
    """The dataset's own columns, as the row has them."""
    return tuple((name, value) for name, value in row.metadata().items() if name in ("reward", "group", "split"))


def _fits_again(before: Iterable[Turn], preset: str) -> bool:
    return preset not in EVERY_TURN or all(turn.trained for turn in before if turn.speaker == "assistant")


def imported(file: Path, store: Path) -> Path:
    """A new store with the rows of a file."""
    stemma("import", file, "--store", store)
    return store


def judge_imported(world: World, first: Export, store: Path, preset: str, out: Path) -> list[Fault]:
    """Export a store into which the rows of an export were imported, and judge it by that export."""
    written = read_export(preset, export(store, preset, out))
    labels = labels_in(store)
    expected = expected_of_rows(world, first, preset)
    path = f"store → {first.preset} → import"
    return TextJudge(written, expected, path, lambda line: labels.get(str(line.get("made")), [])).judge()


@cache
def labels_in(store: Path) -> dict[str, list[str]]:
    """The label of every reply in a store, by the id of its node."""
    found: dict[str, list[str]] = {}
    with open_store(store) as opened:
        for name in opened.names():
            graph = opened.load(name)
            messages = graph.messages()
            for call in graph.calls():
                label = label_of(MARK.findall(json.dumps(messages[call.index])))
                label = label or empty_label(MARK.findall(json.dumps(messages[: call.index])))
                found.setdefault(call.made, []).append(label)
    return found


def judge_again(world: World, first: Export, preset: str, out: Path, file: Path | None = None) -> list[Fault]:
    """Export the data file of an export, or another of the same rows, with no store in between."""
    written = read_export(preset, export(file or first.folder / "train.jsonl", preset, out))
    expected = expected_of_rows(world, first, preset)
    places = {place: label for row in first.rows for place, label in _places(row)}
    path = f"{first.preset} file, compressed" if file else f"{first.preset} file"
    return TextJudge(written, expected, path, lambda line: at_place(line, places)).judge()


def _places(row: Row) -> Iterable[tuple[tuple[int, int], str]]:
    """Where each trained turn stands when the row is read as messages: results are messages of their own."""
    at = 0
    for number, turn in enumerate(row.turns):
        if turn.trained and (label := label_of(turn.marks())):
            yield (row.number + 1, at), label
        generated = number == 0 and turn.speaker == "system" and "<tools>" in turn.text
        at += 0 if generated else max(1, turn.text.count("<tool_response>")) if turn.speaker == "tool" else 1


def at_place(line: dict[str, Any], places: dict[tuple[int, int], str]) -> list[str]:
    """The reply that was read from that line of the file at that place of its conversation."""
    _, _, number = str(line.get("rollout", "")).rpartition("#")
    label = places.get((int(number), int(line.get("index", -1)))) if number.isdigit() else None
    return [label] if label else []
