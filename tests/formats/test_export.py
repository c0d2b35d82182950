"""An export accounts for every row, is whole or not there, and is the same for the same rows."""

import json
from pathlib import Path

import pytest

import needs
from stemma import Call, MessageGraph
from stemma.errors import BadRecord, NotFound, NotWritten
from stemma.formats.export import Options, export, write_whole
from stemma.formats.files import load_trajectories
from stemma.formats.presets import NAMES, preset
from stemma.formats.template_check import TemplateInspector
from stemma.formats.training import TrainingRow, row_of_entry, rows_of_graph

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


def row(number=0, question="Q", answer="A", **more):
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer, "reasoning": "r"}]
    return TrainingRow(
        id=f"row {number}", messages=messages, trained=(1,), tools=TOOLS, model="m", completed=True, **more
    )


def test_every_row_is_written_or_counted_with_a_reason_and_an_example(tmp_path):
    rows = [
        row(0),
        row(1, question="forged <|im_end|>"),
        row(2, question="lone \ud800"),
        TrainingRow(id="row 3", messages=[{"role": "user", "content": "Q"}], trained=()),
        BadRecord("is no JSON", "x.jsonl", 4),
        row(5, question="and <|im_start|> again"),
    ]
    report = export(rows, preset("hermes"), tmp_path / "out")
    assert report.written == 1
    assert {reason: met.rows for reason, met in report.left_out.items()} == {
        "control marker": 2,
        "lone surrogate": 1,
        "nothing to train": 1,
        "unreadable": 1,
    }
    assert report.left_out["control marker"].example == "row 1#1"
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert told["left_out"]["control marker"] == {
        "replies": 2,
        "rows": 2,
        "example": "row 1#1",
        "detail": "turn 1 (human) carries the control marker '<|im_end|>'",
    }


def test_markers_are_written_when_allowed(tmp_path):
    report = export(
        [row(question="forged <|im_end|>")], preset("hermes"), tmp_path, options=Options(allow_markers=True)
    )
    assert (report.written, report.left_out) == (1, {})


@pytest.mark.parametrize("name", [name for name in NAMES if name != "parquet"])
def test_the_same_rows_give_the_same_bytes_in_every_preset(tmp_path, name):
    rows = [row(i, question=f"Q{i}", metadata={"n": i}) for i in range(20)]
    for folder in ("a", "b"):
        assert export(rows, preset(name), tmp_path / folder).written >= 20
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert [(tmp_path / "a" / f).read_bytes().replace(b"/a/", b"/b/") for f in files] == [
        (tmp_path / "b" / f).read_bytes() for f in files
    ]


def test_hermes_rows_come_back_with_their_trained_turns_and_metadata(tmp_path):
    export([row(metadata={"level": "hard", "n": [1, 2]})], preset("hermes"), tmp_path / "x.jsonl")
    (entry,) = load_trajectories(tmp_path / "x.jsonl")
    assert entry["trained_turns"] == [2]
    assert entry["conversations"][2]["value"] == "<think>\nr\n</think>\nA"
    back = row_of_entry(entry, "x")
    assert {key: back.metadata[key] for key in ("level", "n")} == {"level": "hard", "n": [1, 2]}


def test_an_export_that_fails_leaves_the_file_that_was_there(tmp_path):
    export([row()], preset("openai"), tmp_path)
    before = (tmp_path / "train.jsonl").read_bytes()

    def rows():
        yield row(1)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        export(rows(), preset("openai"), tmp_path)
    assert (tmp_path / "train.jsonl").read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))


def test_a_disk_that_refuses_is_told_with_the_file():
    with pytest.raises((NotWritten, OSError)):
        write_whole(Path("/proc/nothing-here"), b"x")


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(NotFound, match="llamafactory"):
        preset("megatron")


def conversation_under_guidance():
    """Everything that could leak: calls made under an ephemeral prompt, and metadata that is ours."""
    graph = MessageGraph([{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}])
    extra = {"ephemeral": "CANARY", "prefill": [{"role": "user", "content": "CANARY"}], "raw": "CANARY"}
    graph.record({"role": "assistant", "content": "A", "reasoning": "r"}, Call(model="m", tools=TOOLS, extra=extra))
    return list(rows_of_graph(graph, {"level": "hard", "stemma": {"imported": {"raw": "CANARY"}}}))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_ephemeral_is_in_no_file_of_any_preset(tmp_path, name):
    report = export(conversation_under_guidance(), preset(name), tmp_path)
    assert report.written == report.off_policy == 1
    for file in tmp_path.iterdir():
        assert b"CANARY" not in file.read_bytes(), file.name
    if name == "parquet":
        table = needs.package("pyarrow.parquet", "columns").read_table(tmp_path / "train.parquet")
        assert "CANARY" not in str(table.to_pylist())


def test_tokens_are_counted_with_a_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'stemmata[tokens]'")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    inspector = TemplateInspector(tmp_path)
    report = export(
        [row(question="one two three", answer="four")], preset("hermes"), tmp_path / "x", inspector=inspector
    )
    words = [turn["value"] for turn in report.sample["conversations"]]
    assert report.tokens == sum(len(value.split()) for value in words)
    with pytest.raises(NotFound, match="tokenizer"):
        TemplateInspector(tmp_path / "nowhere.json")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "parquet"])
@pytest.mark.parametrize("field", ["images", "audio"])
def test_a_reply_to_what_text_cannot_show_is_left_out_wherever_the_message_holds_it(tmp_path, name, field):
    graph = MessageGraph([{"role": "user", "content": "What is this?", field: ["aGk="]}])
    graph.record({"role": "assistant", "content": "A cat."}, Call(model="m"))
    report = export(rows_of_graph(graph, {}, name="talk"), preset(name), tmp_path)
    assert {reason: met.replies for reason, met in report.left_out.items()} == {"not text": 1}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("openai", "parquet")])
@pytest.mark.parametrize("place", ["call", "result"])
def test_no_row_holds_a_lone_surrogate_that_an_escape_has_hidden(tmp_path, name, place):
    hidden = r'{"x": "\ud800"}'
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": hidden if place == "call" else "{}"}}
    graph = MessageGraph([{"role": "user", "content": "Q"}])
    graph.record({"role": "assistant", "content": None, "tool_calls": [call]}, Call(model="m"))
    graph.append({"role": "tool", "tool_call_id": "c", "content": hidden})
    graph.record({"role": "assistant", "content": "A"}, Call(model="m"))
    export(rows_of_graph(graph, {}, name="talk"), preset(name), tmp_path)
    for line in (tmp_path / "train.jsonl").read_bytes().splitlines():
        json.dumps(json.loads(line), ensure_ascii=False).encode()


def test_two_exports_into_one_place_are_never_mixed(tmp_path):
    def rows(second):
        yield row(0)
        if second:
            with pytest.raises(NotWritten, match="another export"):
                export([row(1, answer="B")], preset("openai"), tmp_path)
        yield row(2)

    assert export(rows(second=True), preset("openai"), tmp_path).written == 2
    said = [json.loads(line)["messages"][1]["content"] for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert said == ["A", "A"]
    assert not list(tmp_path.glob("*.partial"))
    assert export([row(1, answer="B")], preset("openai"), tmp_path).written == 1


@pytest.mark.parametrize("name", NAMES)
def test_arguments_with_a_key_twice_are_trained_as_they_were_or_not_at_all(tmp_path, name):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": {"b": 1, "b": 2}}'}}
    graph = MessageGraph([{"role": "user", "content": "Q"}])
    graph.record({"role": "assistant", "content": None, "tool_calls": [call]}, Call(model="m"))
    report = export(rows_of_graph(graph, {}, name="talk"), preset(name), tmp_path)
    carried = name in ("openai", "parquet")
    assert report.trained_messages == carried
    assert list(report.left_out) == ([] if carried else ["arguments are not an object"])
