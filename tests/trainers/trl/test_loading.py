"""The real `datasets` loads what is exported, bare and with the features that lie beside it, and changes nothing."""

import json

import pytest

from converted import about, as_converted, records_of
from hostile import NASTY
from stemma.formats.export import export
from stemma.formats.parquet import PARQUET
from stemma.formats.training import TrainingRow
from stemma.formats.trl import TRL
from stemma.formats.trl import trl_rows as converted_rows
from trainers.trl.conftest import load, templates, tokenizer
from trainers.trl.samples import TOOLS, rows, said

trl_rows = records_of(converted_rows)
SHAPES = [{"q": "x"}, {"n": 1}, {"q": [1, "a", None]}, {"q": {"deep": {}}}, {}]


def load_bare(path, kind="json"):
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    return load_dataset(kind, data_files=str(path), split="train")


def mixed_row(at):
    """Plain chats of 2 KB for 6,000 rows; then tools, calls of all shapes, reasoning, split rows, and metadata."""
    messages = [{"role": "user", "content": f"question {at} " + "x" * 2_000}]
    if at < 6_000:
        return TrainingRow(id=str(at), messages=[*messages, said("answer")], trained=(1,))
    messages += [
        said("looking" if at % 3 else None, "why" if at % 2 else None, [("search", SHAPES[at % len(SHAPES)])]),
        {"role": "tool", "tool_call_id": "call_search_0", "content": "found"},
        said("answer"),
    ]
    trained = (1, 3) if at % 2 else (3,)
    metadata = {"reward": at / 4, "tags": SHAPES[: at % 3], "day": "2026-01-01"} if at % 4 else {}
    return TrainingRow(
        id=str(at), messages=messages, trained=trained, tools=TOOLS[: at % 3], model="m", metadata=metadata
    )


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    report = export((mixed_row(at) for at in range(10_000)), TRL, folder)
    assert report.written == 10_000
    assert not report.left_out
    with open(folder / "train.jsonl", "rb") as file:
        beginning = file.read(11 << 20)
    assert b"tool_calls" not in beginning
    assert b"reward" not in beginning
    return folder


@pytest.mark.parametrize("how", ["bare", "with features.json"])
def test_ten_thousand_rows_load_though_the_first_call_comes_after_the_first_ten_megabytes(mixed, how):
    from datasets import Json, List, Value

    loaded = load_bare(mixed / "train.jsonl") if how == "bare" else load(mixed)
    text = dict.fromkeys(("tools", "id", "model", "finish_reason", "off_policy"), Value("string"))
    messages = {"prompt": List(Json()), "completion": List(Json())}
    assert loaded.features == messages | text | {"on_policy": Value("bool"), "metadata": {"json": Value("string")}}
    for at, row in enumerate(loaded):
        if at == 0:
            assert {len(row[name][0].pop("note")) for name in ("prompt", "completion")} == {104}
        source = mixed_row(at)
        assert [as_converted(row)] == trl_rows(source)
        assert about(row) == {
            "id": str(at), "model": source.model or "imported", "finish_reason": "", "on_policy": True,
            "off_policy": "", "metadata": source.metadata,
        }  # fmt: skip


def test_hostile_text_comes_back_as_it_was(tmp_path):
    texts = [text for text in NASTY if text.encode("utf-8", "replace").decode() == text and "<" not in text]
    hostile = [
        TrainingRow(
            id=str(at),
            messages=[{"role": "user", "content": text}, said(text, text, [("search", {text: [text]})])],
            trained=(1,),
        )
        for at, text in enumerate(texts)
    ]
    report = export(hostile, TRL, tmp_path)
    assert (report.written, len(report.left_out)) == (len(texts), 0)
    for loaded in (load(tmp_path), load_bare(tmp_path / "train.jsonl")):
        for row, source in zip(loaded, hostile, strict=True):
            for messages in (row["prompt"], row["completion"]):
                messages[0].pop("note", None)
            assert [as_converted(row)] == trl_rows(source)


def test_numbers_need_the_parser_that_the_script_puts_in(tmp_path, monkeypatch):
    """If this fails because the first assertion does: `datasets` has been mended, and the script can do without."""
    import pandas

    def loaded(folder):
        export(rows(), TRL, folder)
        return load(folder)[1]["completion"][0]["tool_calls"][1]["function"]["arguments"]["at"]

    assert loaded(tmp_path / "bent") == [0.41000000000000003, 0.0, 52.5170365]
    monkeypatch.setattr(pandas.io.json, "ujson_loads", json.loads)
    monkeypatch.setattr(pandas.io.json, "ujson_dumps", json.dumps)
    assert loaded(tmp_path / "exact") == [0.41, 1e-12, 52.51703650000001]


def test_no_template_reads_the_note(tmp_path):
    from jinja2 import TemplateError

    export(rows(), TRL, tmp_path)
    first = load(tmp_path)[0]
    noted = first["prompt"] + first["completion"]
    plain = [{key: value for key, value in message.items() if key != "note"} for message in noted]
    assert noted != plain
    read = 0
    for path in sorted(templates().glob("*.jinja")):
        tokens = tokenizer(path.stem)
        try:
            expected = tokens.apply_chat_template(plain, tokenize=False)
        except TemplateError:  # wants images
            continue
        assert tokens.apply_chat_template(noted, tokenize=False) == expected
        read += 1
    assert read > 40


def test_nulls_in_place_of_absent_keys_would_break_templates():
    """Why messages are not padded to one shape, as Arrow would have it."""
    from jinja2 import TemplateError

    plain = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    padded = [{**message, "tool_calls": None} for message in plain]

    def breaks(name):
        tokens = tokenizer(name)
        try:
            given = tokens.apply_chat_template(padded, tokenize=False)
        except (TypeError, TemplateError):
            return True
        return given != tokens.apply_chat_template(plain, tokenize=False)

    names = ["llama3_1", "llama3_2", "deepseekv3", "gptoss", "qwen3"]
    assert [name for name in names if breaks(name)] == ["llama3_1", "llama3_2", "deepseekv3", "gptoss"]


def test_parquet_loads_and_every_message_comes_back(tmp_path):
    from datasets import Value

    export((mixed_row(at) for at in range(5_990, 6_010)), PARQUET, tmp_path)
    loaded = load_bare(tmp_path / "train.parquet", "parquet")
    assert {name for name, kind in loaded.features.items() if kind == Value("string")} == {
        "id", "messages", "tools", "model", "timestamp", "finish_reason", "off_policy", "tip", "metadata",
    }  # fmt: skip
    assert [loaded.features[name] for name in ("completed", "on_policy", "reward")] == [
        Value("bool"), Value("bool"), Value("float64"),
    ]  # fmt: skip
    for row, at in zip(loaded, range(5_990, 6_010), strict=True):
        source = mixed_row(at)
        assert json.loads(row["messages"]) == source.messages
        assert json.loads(row["tools"]) == (source.tools or None)
        assert row["trained"] == list(source.trained)
        assert (json.loads(row["metadata"]), row["reward"]) == (source.metadata, source.metadata.get("reward"))
