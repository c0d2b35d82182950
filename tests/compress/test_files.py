"""Files and folders: every row comes out once, in order, compressed or as it was, with its metrics."""

import asyncio
import gzip
import json

import pytest

from compress.rows import Words, agentic, failing, saying, settings, turn
from stemma.compress.errors import OutputThere
from stemma.compress.files import Source, compress_files, forecast_files
from stemma.compress.run import Run
from stemma.compress.sampling import Sample
from stemma.compress.settings import Metrics, Output, Processing
from stemma.formats.files import load_trajectories

HOW = settings(target=700)
EVERYTHING = Sample()


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(number, steps=10):
    return {"prompt_index": number, "conversations": agentic(steps), "completed": True, "score": 0.5}


def compress(path, out=None, how=HOW, summarizer=None, sample=EVERYTHING):
    async def go():
        run = Run(how, Words(), summarizer or saying(20))
        files = await compress_files(Source(path, sample), out, run, {"settings": "x"})
        return run.report, files

    return asyncio.run(go())


def test_every_row_comes_out_in_order_with_its_columns_and_metrics(tmp_path):
    source = write(tmp_path / "a.jsonl", [row(i, steps=12 if i % 3 else 2) for i in range(40)])
    report, _ = compress(source)
    rows = list(load_trajectories(tmp_path / "a_compressed.jsonl"))
    assert [r["prompt_index"] for r in rows] == list(range(40))
    assert all(r["score"] == 0.5 and r["completed"] for r in rows)
    assert [r["compression_metrics"]["was_compressed"] for r in rows] == [bool(i % 3) for i in range(40)]
    assert rows[0]["conversations"] == row(0, 2)["conversations"]
    assert (report.rows, report.compressed, report.skipped) == (40, 26, 14)
    told = json.loads((tmp_path / "a_compressed_metrics.json").read_text())
    assert told["summary"]["trajectories_compressed"] == 26
    assert told["tokens"]["total_after"] == sum(r["compression_metrics"]["compressed_tokens"] for r in rows)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "a_compressed.jsonl", "a_compressed_metrics.json"]


def test_the_metrics_have_the_same_shape_in_every_row(tmp_path):
    rows = [row(0), row(1, 2), {"x": 1}, {"conversations": "?"}, {"conversations": []}]
    compress(write(tmp_path / "a.jsonl", rows))
    shapes = {
        str({k: type(v).__name__ for k, v in r["compression_metrics"].items()})
        for r in load_trajectories(tmp_path / "a_compressed.jsonl")
    }
    assert len(shapes) == 1
    known = {"original_tokens", "compressed_tokens", "tokens_saved", "compression_ratio", "original_turns"}
    known |= {"compressed_turns", "turns_removed", "compression_region", "was_compressed", "still_over_limit"}
    known |= {"skipped_under_target", "summarization_api_calls", "summarization_errors"}
    assert known <= next(load_trajectories(tmp_path / "a_compressed.jsonl"))["compression_metrics"].keys()


def test_what_is_no_conversation_is_kept_and_what_is_no_row_is_named(tmp_path):
    source = write(tmp_path / "a.jsonl", [{"x": 1}, {"conversations": [1, 2]}, row(0)])
    with source.open("a") as file:
        file.write("not json\n\n")
    report, _ = compress(source)
    rows = list(load_trajectories(tmp_path / "a_compressed.jsonl"))
    assert [rows[0]["x"], rows[1]["conversations"]] == [1, [1, 2]]
    assert rows[1]["compression_metrics"]["failed"]
    assert "no list of objects" in rows[1]["compression_metrics"]["why"]
    assert (report.rows, report.failed, report.unreadable) == (3, 1, 1)


def test_rows_of_openai_messages_are_compressed_as_such(tmp_path):
    names = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
    messages = [{"role": names[t["from"]], "content": t["value"]} for t in agentic()]
    compress(write(tmp_path / "a.jsonl", [{"messages": messages}]))
    made = next(load_trajectories(tmp_path / "a_compressed.jsonl"))["messages"]
    assert made[4]["role"] == "user"
    assert made[4]["content"].startswith("[CONTEXT SUMMARY]:")
    assert made[1:4] == messages[1:4]


def test_a_folder_is_compressed_file_by_file_and_nothing_twice(tmp_path):
    folder = tmp_path / "run"
    write(folder / "batch_0.jsonl", [row(0)])
    write(folder / "batch_1.jsonl", [row(1)])
    report, files = compress(folder)
    assert (report.rows, len(files.targets)) == (2, 2)
    assert sorted(p.name for p in (tmp_path / "run_compressed").iterdir()) == [
        "batch_0.jsonl",
        "batch_1.jsonl",
        "compression_metrics.json",
    ]
    write(folder / "trajectories.jsonl", [row(0), row(1)])
    report, files = compress(folder, tmp_path / "again")
    assert (report.rows, report.api_calls) == (2, 2), "the merged file alone, not its parts as well"
    assert [target.main.name for target in files.targets] == ["trajectories.jsonl"]


def test_a_compressed_source_is_read(tmp_path):
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps(row(0)) + "\n")
    compress(tmp_path / "a.jsonl.gz")
    assert len(list(load_trajectories(tmp_path / "a_compressed.jsonl"))) == 1


def test_what_is_there_is_not_overwritten(tmp_path):
    source = write(tmp_path / "a.jsonl", [row(0)])
    compress(source)
    before = (tmp_path / "a_compressed.jsonl").read_bytes()
    with pytest.raises(OutputThere, match="is there already"):
        compress(source)
    with pytest.raises(OutputThere, match="is there already"):
        compress(source, source)
    assert (tmp_path / "a_compressed.jsonl").read_bytes() == before


def test_rows_that_fail_are_in_the_output_as_they_were(tmp_path):
    source = write(tmp_path / "a.jsonl", [row(0), row(1)])
    report, _ = compress(source, summarizer=failing())
    made = list(load_trajectories(tmp_path / "a_compressed.jsonl"))
    assert [m["conversations"] for m in made] == [row(0)["conversations"]] * 2
    assert (report.failed, report.compressed, report.over) == (2, 0, 2)


def test_rows_over_the_limit_can_be_kept_apart(tmp_path):
    source = write(tmp_path / "a.jsonl", [row(0), {"conversations": [turn("human", 900)], "n": 1}, row(2)])
    compress(source, how=settings(target=700, processing=Processing(save_over_limit=False)))
    assert len(list(load_trajectories(tmp_path / "a_compressed.jsonl"))) == 2
    apart = list(load_trajectories(tmp_path / "a_compressed_over_limit.jsonl"))
    assert [r["n"] for r in apart] == [1]
    assert "protected" in apart[0]["compression_metrics"]["why"]


def test_a_sample_has_the_size_asked_for_and_is_the_same_for_the_same_seed(tmp_path):
    source = write(tmp_path / "a.jsonl", [row(i, 1) for i in range(200)])

    def taken(name, **sample):
        compress(source, tmp_path / name, sample=Sample(**sample))
        return [r["prompt_index"] for r in load_trajectories(tmp_path / name)]

    first = taken("1.jsonl", percent=15, seed=1)
    assert len(first) == 30
    assert first == sorted(first)
    assert taken("2.jsonl", percent=15, seed=1) == first
    assert taken("3.jsonl", percent=15, seed=2) != first
    assert len(taken("4.jsonl", percent=0.01)) == 1


def test_a_forecast_counts_and_writes_nothing(tmp_path):
    source = write(tmp_path / "a.jsonl", [row(0), row(1, 2), row(2)])

    async def go():
        return await forecast_files(Source(source, Sample()), Run(HOW, Words(), failing()))

    told = asyncio.run(go()).to_dict()
    assert (told["rows"], told["rows_affected"], told["summaries"]) == (3, 2, 2)
    assert told["tokens"] == 2 * 1030 + 230
    assert told["prompt_tokens"] == 2 * 400
    assert told["completion_tokens"] == 2 * 30
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


def test_settings_of_output_and_metrics(tmp_path):
    source = write(tmp_path / "a.jsonl", [row(0)])
    how = settings(
        target=700,
        output=Output(add_summary_notice=False, output_suffix="-short"),
        metrics=Metrics(enabled=False, per_trajectory=False),
    )
    compress(source, how=how)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a-short.jsonl", "a.jsonl"]
    made = next(load_trajectories(tmp_path / "a-short.jsonl"))
    assert "compression_metrics" not in made
    assert made["conversations"][0] == agentic()[0]
