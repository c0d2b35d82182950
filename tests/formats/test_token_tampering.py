"""No cell of a token export can change unseen, also by somebody who fits the file's hash to the changed file."""

import json
from copy import deepcopy
from hashlib import sha256
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stemma.core.exclusions import Rules
from stemma.core.receipts import Manifest, RowLine, from_line, merkle_root, to_line
from stemma.formats.token_export import export_tokens, rollout_of
from stemma.formats.token_presets import TOKEN_NAMES, token_preset
from stemma.formats.token_proof import manifest_of, prove_export
from token_conversations import Chat, Words, user

SAMPLER = {"params": {"temperature": 0.7, "top_p": 0.9}, "finish_reason": "stop"}
HELD_BY_THE_LINE_ALONE = {
    "atropos": {"ref_logprobs", "messages", "generation_params", "images"},
    "skyrl": {"rollout_metrics"},
    "slime": {"group_index", "index", "rollout_id"},
    "verl": {"metrics"},
    "tinker": {"type"},
    "tree": set(),
    "trl-grpo": set(),
    "tokens": set(),
}
"""Cells that say nothing of a row: numbers by which a loader counts, and fields left empty."""


def conversation(words, answer):
    """Two rows; policy versions, a reply cut by its length, and forced tokens."""
    chat = Chat(user("hi there"), words=words).says("hello", extra={"policy_version": 3}, **SAMPLER).hears("and")
    chat.says(f"{answer} indeed so", extra={"policy_spans": [[0, "3"], [1, "4"]], "forced": [[1, 2]]}, **SAMPLER)
    chat.graph[0]["content"] = "hi you"
    cut = {**SAMPLER, "finish_reason": "length"}
    return chat.hears("so").says("well then", extra={"constraint": "grammar", "forced": [[0, 1]]}, **cut).graph


def export(name, out, number=3):
    """Rollouts of two prompts; of three one is alone in its group, which some formats fill."""
    words = Words()
    rollouts = [
        rollout_of(f"r{n}", {"group": f"p{n % 2}", "reward": n / 2}, lambda n=n: conversation(words, f"yes{n}"))
        for n in range(number)
    ]
    report = export_tokens(rollouts, token_preset(name), out, Rules(), version="0")
    return Path(report.file)


def cells(value, path=()):
    """The paths of all cells: each key, and of each list its first, middle and last element."""
    if isinstance(value, dict) and value:
        for key in value:
            yield from cells(value[key], (*path, key))
    elif isinstance(value, list) and value:
        for at in sorted({0, len(value) // 2, len(value) - 1}):
            yield from cells(value[at], (*path, at))
    else:
        yield path


def other_values(value):
    """Changes of a cell, small ones and its loss."""
    match value:
        case bool():
            return [not value, None]
        case int():
            return [value + 1, -value - 1]
        case float():
            return [value + 0.5, -value if value else 1e-30, None]
        case str():
            return [value + "x", ""]
        case None:
            return [0.5, "x"]
        case _:
            return [[0], None] if isinstance(value, list) else [{"x": 1}, None]


def changed(records, path, new):
    found = deepcopy(records)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return found


def at(value, path):
    for key in path:
        value = value[key]
    return value


def refit(folder, data, lines=None):
    """Make the manifest fit the data, and if `lines` are given the receipts fit these lines as well."""
    path = folder / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    root = manifest.root
    if lines is not None:
        receipts, hashes = folder / "receipts.jsonl", iter(lines)
        records = [from_line(line) for line in receipts.read_bytes().splitlines()]
        fitted = [
            to_line(msgspec.structs.replace(one, record=next(hashes)) if isinstance(one, RowLine) else one)
            for one in records
        ]
        receipts.write_bytes(b"".join(line + b"\n" for line in fitted))
        root = merkle_root(fitted)
    content = sha256(data.read_bytes()).hexdigest()
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, data=content, root=root)))


def findings(folder):
    return prove_export(manifest_of(folder))[1].findings


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_every_changed_cell_of_a_line_is_found(name, tmp_path):
    data = export(name, tmp_path / "train.jsonl")
    records = [json.loads(line) for line in data.read_bytes().splitlines()]
    tried = 0
    for path in cells(records):
        for new in other_values(at(records, path)):
            data.write_text("".join(json.dumps(one) + "\n" for one in changed(records, path, new)))
            refit(tmp_path, data)
            assert findings(tmp_path), f"{path} became {new!r}"
            tried += 1
    assert tried > 100


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_every_changed_cell_is_found_by_what_it_says_even_if_the_lines_hashes_are_fitted(name, tmp_path):
    data = export(name, tmp_path / "train.jsonl", number=2)
    receipts = (tmp_path / "receipts.jsonl").read_bytes()
    records = [json.loads(line) for line in data.read_bytes().splitlines()]
    rows_in = token_preset(name).rows_in
    for path in cells(records):
        for new in other_values(at(records, path)):
            lines = [json.dumps(one).encode() for one in changed(records, path, new)]
            data.write_bytes(b"".join(line + b"\n" for line in lines))
            (tmp_path / "receipts.jsonl").write_bytes(receipts)
            hashes = [
                sha256(line).hexdigest()
                for line, record in zip(lines, records, strict=True)
                for _ in range(rows_in(record))
            ]
            refit(tmp_path, data, hashes)
            allowed = {key for key in path if isinstance(key, str)} & HELD_BY_THE_LINE_ALONE[name]
            assert findings(tmp_path) or (allowed and "metadata" not in path), f"{path} became {new!r}"


def test_a_line_that_was_only_written_anew_says_the_same(tmp_path):
    """So the test above finds what changed, not that something was written."""
    for name in TOKEN_NAMES:
        folder = tmp_path / name
        data = export(name, folder / "train.jsonl")
        records = [json.loads(line) for line in data.read_bytes().splitlines()]
        lines = [json.dumps(one).encode() for one in records]
        data.write_bytes(b"".join(line + b"\n" for line in lines))
        rows_in = token_preset(name).rows_in
        hashes = [
            sha256(line).hexdigest()
            for line, record in zip(lines, records, strict=True)
            for _ in range(rows_in(record))
        ]
        refit(folder, data, hashes)
        assert findings(folder) == []


def test_every_changed_cell_of_parquet_is_found(tmp_path):
    data = export("tokens", tmp_path)
    table = pq.read_table(data)
    records, tried = table.to_pylist(), 0
    for path in cells(records):
        for new in other_values(at(records, path)):
            try:
                made = pa.Table.from_pylist(changed(records, path, new), schema=table.schema)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                continue  # no value of that column
            if made.equals(table):
                continue  # 1e-30 is 0 where floats are small
            pq.write_table(made, data)
            refit(tmp_path, data)
            assert findings(tmp_path), f"{path} became {new!r}"
            tried += 1
    assert tried > 100


def test_a_number_in_a_list_of_parquet_that_is_missing_is_found(tmp_path):
    data = export("tokens", tmp_path)
    table = pq.read_table(data)
    for name in ("input_ids", "attention_mask", "labels", "logprobs"):
        records = table.to_pylist()
        records[0][name][0] = None
        pq.write_table(pa.Table.from_pylist(records, schema=table.schema), data)
        refit(tmp_path, data)
        assert findings(tmp_path), name


def test_another_column_or_another_type_of_parquet_is_found(tmp_path):
    data = export("tokens", tmp_path)
    table = pq.read_table(data)
    wide = table.set_column(0, "input_ids", table["input_ids"].cast(pa.list_(pa.int64())))
    for other in (table.append_column("more", [[1] * table.num_rows]), table.drop_columns("reward"), wide):
        pq.write_table(other, data)
        refit(tmp_path, data)
        assert findings(tmp_path)


def test_lines_in_another_order_are_found(tmp_path):
    data = export("slime", tmp_path)
    data.write_bytes(b"".join(line + b"\n" for line in reversed(data.read_bytes().splitlines())))
    refit(tmp_path, data)
    assert findings(tmp_path)
