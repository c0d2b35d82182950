"""The ways from conversations to rows: each runs the real commands and says what is expected at its end."""

import io
import json
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from stemma import open_store
from stemma.cli.main import main
from truth.conversations import World
from truth.judge import Expected, Fault, TextJudge, described, duty, expected_of, judge_tokens, label_of
from truth.readers import TOKEN_PRESETS, Export, read_export, receipts_of, report_of, token_rows
from truth.shapes import MARK


class CommandFailed(AssertionError):
    """A command that ended badly."""


def stemma(*arguments: object) -> str:
    """Run a command in this process; what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    if code:
        raise CommandFailed(f"stemma {' '.join(map(str, arguments))} ended with {code}:\n{err.getvalue()}{out.getvalue()}")
    return out.getvalue()


def export(source: Path, preset: str, out: Path, *options: str) -> Path:
    stemma("export", source, "--for", preset, "--out", out, *options)
    return out


# ── store → preset (also of merged and of compressed stores) ─────────────────────────────────────────────────


def judge_store(world: World, store: Path, preset: str, out: Path, path: str) -> list[Fault]:
    """Export a store that holds a world, and judge it."""
    folder = export(store, preset, out)
    if preset in TOKEN_PRESETS:
        return judge_token_export(world, preset, folder, path)
    return judge_text_export(world, read_export(preset, folder), path)


def judge_text_export(world: World, written: Export, path: str) -> list[Fault]:
    expected = [expected_of(one, written.preset, world.rewards.get(one.conversation)) for one in world.replies]
    labels = {one.made: known.label for one, known in zip(world.replies, expected, strict=True)}
    return TextJudge(written, expected, path, lambda line: labels.get(str(line.get("made")))).judge()


def judge_token_export(world: World, preset: str, folder: Path, path: str) -> list[Fault]:
    written = Export(preset, folder, [], report_of(folder), receipts_of(folder))
    return judge_tokens(preset, path, token_rows(preset, folder), world, written)


# ── store → preset → import → preset ─────────────────────────────────────────────────────────────────────────


def expected_of_rows(world: World, first: Export, preset: str) -> list[Expected]:
    """What a second export must say, if the first is what it was made from."""
    by_label = {label_of(one.spoken.marks()): one for one in world.replies}
    found = []
    for row in first.rows:
        for at, turn in enumerate(row.turns):
            label = label_of(turn.marks()) if turn.trained else None
            if label is None or label not in by_label:
                continue  # the judge of the first export has said so
            reply = by_label[label]
            both = {duty(reply, first.preset), duty(reply, preset)}
            known = expected_of(reply, preset)
            found.append(
                Expected(
                    label=label, conversation=reply.conversation, thoughts=known.thoughts, texts=known.texts,
                    calls=known.calls, marks=known.marks, tools=row.described(),
                    context=tuple((before.speaker, before.marks()) for before in row.turns[:at]),
                    duty="train" if both == {"train"} and _fits_again(row.turns[:at], preset) else "either",
                    on_policy=None, raw=False, shape=known.shape,
                )
            )  # fmt: skip
    return found


def _fits_again(before: Iterable[Any], preset: str) -> bool:
    return preset not in ("llamafactory", "unsloth") or all(
        turn.trained for turn in before if turn.speaker == "assistant"
    )


def judge_import(world: World, first: Export, preset: str, out: Path) -> list[Fault]:
    """Import the rows of an export into a new store, export that, and judge it by the first export."""
    store = out / "imported.db"
    if not store.exists():
        stemma("import", first.folder / "train.jsonl", "--store", store)
    written = read_export(preset, export(store, preset, out / preset))
    expected, labels = expected_of_rows(world, first, preset), labels_in(store)
    path = f"{first.preset} → import"
    return TextJudge(written, expected, path, lambda line: labels.get(str(line.get("made")))).judge()


def judge_export_file(world: World, first: Export, preset: str, out: Path) -> list[Fault]:
    """Export the data file of an export again, without a store in between."""
    written = read_export(preset, export(first.folder / "train.jsonl", preset, out))
    expected = expected_of_rows(world, first, preset)
    labels = {(row.number + 1, label_of(turn.marks())) for row in first.rows for turn in row.turns if turn.trained}
    by_line: dict[tuple[int, int], str] = {}
    for row in first.rows:
        at = -1
        for turn in row.turns:
            at += 1
            if label := label_of(turn.marks()):
                by_line[row.number + 1, at] = label
    del labels
    return TextJudge(written, expected, f"{first.preset} file", lambda line: by_line.get(place_of(line))).judge()


def place_of(line: dict[str, Any]) -> tuple[int, int]:
    """The line of a file that an excluded reply was read from, and its place in that conversation."""
    _, _, number = str(line.get("rollout", "")).rpartition("#")
    return int(number) if number.isdigit() else -1, int(line.get("index", -1))


def labels_in(store: Path) -> dict[str, str]:
    """The label of every reply in a store, by the id of its node."""
    found = {}
    with open_store(store) as opened:
        for name in opened.names():
            graph = opened.load(name)
            messages = graph.messages()
            for call in graph.calls():
                marks = MARK.findall(json.dumps(messages[call.index]))
                found[call.made] = label_of(marks) or f"{name}#{call.index}"
    return found


__all__ = ["Expected", "described", "export", "judge_import", "judge_store", "stemma"]
