"""The proof of text exports: a sound one is proven, and any change of any cell or receipt is found."""

import copy
import json
import shutil
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from stemma import Call, MessageGraph
from stemma.formats.export import RECEIPTS, export
from stemma.formats.presets import NAMES, preset
from stemma.formats.text_proof import prove_text, text_manifest
from stemma.formats.training import rows_of_graph

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'stemmata[columns]'")

TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]


def conversation(own_system: str = "S") -> MessageGraph:
    """Reasoning, calls, several results, an edit that breaks a prefix, a subagent's fork, Anthropic blocks."""
    call = Call(model="m", tools=TOOLS, finish_reason="stop")
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": f'{{"x": "{n} </b> <b>"}}'}}
        for n in range(2)
    ]
    graph = MessageGraph([{"role": "system", "content": own_system}, {"role": "user", "content": "Q <b>"}])
    graph.record({"role": "assistant", "content": "so", "reasoning": "hm\n", "tool_calls": calls}, call)
    graph.append({"role": "tool", "tool_call_id": "c0", "content": '{"a": [1, 2.5]}'})
    graph.append({"role": "tool", "tool_call_id": "c1", "content": "plain"})
    graph.record({"role": "assistant", "content": "A", "reasoning": "because"}, call)
    graph.append({"role": "user", "content": "again"})
    graph.record({"role": "assistant", "content": "cut", "reasoning": "r"}, Call(model="m", finish_reason="length"))
    graph[1]["content"] = "Q'"
    blocks = [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "B"}]
    graph.append({"role": "user", "content": "more"})
    graph.record({"role": "assistant", "content": blocks}, call)
    return graph


def exported(name: str, folder: Path) -> Path:
    rows = [
        row
        for number in range(3)
        for row in rows_of_graph(
            conversation(f"S{number}"), {"level": "hard", "reward": number / 2}, name=f"talk-{number}"
        )
    ]
    report = export(rows, preset(name), folder)
    assert report.written >= 3
    assert report.replies == 12
    return folder


def findings(folder: Path) -> list[str]:
    manifest = text_manifest(folder / "manifest.json")
    assert manifest is not None
    return [f"{one.subject}: {one.detail}" for one in prove_text(manifest, folder).findings]


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_export_is_proven(tmp_path, name):
    folder = exported(name, tmp_path)
    assert findings(folder) == []
    checked = prove_text(text_manifest(folder / "manifest.json"), folder)
    assert checked.replies == 12
    assert checked.trained + sum(checked.excluded.values()) == 12
    assert checked.excluded["truncated"] == 3


def places(value, path=()):
    """Every scalar in a record, by the way to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))
    else:
        yield path


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "x" if value is None else f"{value}x" if isinstance(value, str) else ["x"]


def put(record, path):
    made = copy.deepcopy(record)
    *above, last = path
    inner = made
    for key in above:
        inner = inner[key]
    inner[last] = changed(inner[last])
    return made


def refitted(folder: Path, data: bytes) -> None:
    """The data, and a manifest that says it is the data it was written for."""
    (folder / "train.jsonl").write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["data"] = sha256(data).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "parquet"])
def test_any_changed_cell_is_found_though_the_hash_of_the_file_is_refitted(tmp_path, name):
    folder = exported(name, tmp_path)
    lines = (folder / "train.jsonl").read_bytes().splitlines()
    record = json.loads(lines[0])
    for path in places(record):
        refitted(folder, b"\n".join([json.dumps(put(record, path)).encode(), *lines[1:]]) + b"\n")
        assert findings(folder), path


@pytest.mark.parametrize("name", [name for name in NAMES if name != "parquet"])
def test_what_a_row_says_is_compared_with_what_was_recorded_and_not_only_with_a_hash(tmp_path, name):
    """A writer that converts wrongly and hashes what it wrote is found out by the messages themselves."""
    folder = exported(name, tmp_path)
    lines = (folder / "train.jsonl").read_bytes().splitlines()
    record = json.loads(lines[0])
    texts = [path for path in places(record) if path[-1] in ("content", "value", "text", "reasoning_content")]
    flags = [path for path in places(record) if path[-1] in ("train", "weight")]
    assert texts
    for path in (*texts, *flags):
        line = json.dumps(put(record, path)).encode()
        refitted(folder, b"\n".join([line, *lines[1:]]) + b"\n")
        receipts = (folder / RECEIPTS).read_bytes()
        fitted = receipts.replace(sha256(lines[0]).hexdigest().encode(), sha256(line).hexdigest().encode())
        (folder / RECEIPTS).write_bytes(fitted)
        found = [one for one in findings(folder) if not one.startswith("receipts: their lines")]
        assert found or _is_forced(name, path), path
        (folder / RECEIPTS).write_bytes(receipts)


def _is_forced(name: str, path: tuple[object, ...]) -> bool:
    """The generated system prompt, which the row names as a difference."""
    return name in ("hermes", "unsloth") and path[1] == 0


@pytest.mark.parametrize("name", ["openai", "hermes"])
def test_any_line_of_the_receipts_that_is_changed_dropped_or_doubled_is_found(tmp_path, name):
    folder = exported(name, tmp_path / "export")
    lines = (folder / RECEIPTS).read_bytes().splitlines()
    kinds = set()
    for at, line in enumerate(lines):
        kind = json.loads(line)["type"]
        if kind in kinds:
            continue
        kinds.add(kind)
        record = json.loads(line)
        others = [put(record, path) for path in places(record) if path != ("type",)]
        for change in ([], [line, line], *([json.dumps(one).encode()] for one in others)):
            (folder / RECEIPTS).write_bytes(b"\n".join([*lines[:at], *change, *lines[at + 1 :]]) + b"\n")
            assert findings(folder), (kind, change)
    assert kinds == {"rollout", "message", "row", "call", "excluded"}


def test_a_file_that_is_cut_off_missing_or_longer_is_found(tmp_path):
    folder = exported("trl", tmp_path / "export")
    for name in ("train.jsonl", RECEIPTS):
        whole = (folder / name).read_bytes()
        for content in (whole[: len(whole) // 2], b"", whole + whole.splitlines(keepends=True)[-1], b"\xff\xfe\n"):
            (folder / name).write_bytes(content)
            assert findings(folder)
        (folder / name).unlink()
        assert findings(folder)
        (folder / name).write_bytes(whole)
    assert findings(folder) == []


def test_a_parquet_cell_that_is_changed_is_found(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = exported("parquet", tmp_path / "export")
    table = pq.read_table(folder / "train.parquet")
    shutil.copy(folder / "manifest.json", tmp_path / "manifest.json")
    for name in table.schema.names:
        rows = table.to_pylist()
        rows[1][name] = changed(rows[1][name]) if name != "trained" else [0]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / "train.parquet")
        manifest = json.loads((tmp_path / "manifest.json").read_text())
        manifest["data"] = sha256((folder / "train.parquet").read_bytes()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(manifest))
        assert findings(folder), name


def test_the_manifest_of_tokens_is_not_taken_for_one_of_text(tmp_path):
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode({"preset": "tokens"}))
    assert text_manifest(tmp_path / "manifest.json") is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("said", [None, "", " \n", "[1] so", "</REASONING_SCRATCHPAD>", "<REASONING_SCRATCHPAD>hm"])
@pytest.mark.parametrize("reasoning", [None, "because"])
def test_a_sound_export_of_a_call_is_proven_whatever_is_said_beside_it(tmp_path, name, said, reasoning):
    graph = MessageGraph([{"role": "user", "content": "Q"}])
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    graph.record({"role": "assistant", "content": said, "reasoning": reasoning, "tool_calls": calls}, Call(model="m"))
    assert export(rows_of_graph(graph, {}, name="talk"), preset(name), tmp_path).trained_messages == 1
    assert findings(tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_result_without_content_is_proven(tmp_path, name):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    graph = MessageGraph([{"role": "user", "content": "Q"}])
    graph.record({"role": "assistant", "content": "", "tool_calls": [call]}, Call(model="m"))
    graph.append({"role": "tool", "tool_call_id": "c", "content": None})
    graph.record({"role": "assistant", "content": "A"}, Call(model="m"))
    export(rows_of_graph(graph, {}, name="talk"), preset(name), tmp_path)
    assert findings(tmp_path) == []
