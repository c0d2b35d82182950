"""`stemma compress`, as a user runs it."""

import json

import pytest

from cli.conftest import trust_project
from compress.endpoint import endpoint
from compress.rows import agentic
from compress.tokenizer_files import save
from stemma import Call, MessageGraph, open_store
from stemma.formats.files import load_trajectories

EXTRACTIVE = ("--summarizer", "extractive", "--tokenizer", "estimate")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [{"conversations": agentic(steps), "n": steps} for steps in (10, 2, 12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_compressed_and_the_table_says_how(run, data):
    told = run("compress", "data.jsonl", "--budget", "500", *EXTRACTIVE)
    assert told.code == 0, told.err
    for said in ("2   compressed", "1   under the target already", "by estimate", "below", "data_compressed.jsonl"):
        assert said in told.out
    rows = list(load_trajectories(data.with_name("data_compressed.jsonl")))
    assert [row["n"] for row in rows] == [10, 2, 12]
    assert all(row["compression_metrics"]["compressed_tokens"] <= 500 for row in rows)


def test_json_is_all_that_is_written_when_asked_for(run, data):
    told = run("compress", "data.jsonl", "--budget", "500", "-o", "out.jsonl", "--json", *EXTRACTIVE)
    report = json.loads(told.out)
    assert report["summary"]["trajectories_compressed"] == 2
    assert report["outputs"] == ["out.jsonl", "out_metrics.json"]


def test_a_dry_run_counts_for_real_and_writes_nothing(run, data):
    told = run(
        "compress", "data.jsonl", "--budget", "500", "--tokenizer", str(save(data.parent / "t")), "--dry-run", "--json"
    )
    forecast = json.loads(told.out)
    assert (forecast["rows"], forecast["rows_affected"], forecast["summaries"]) == (3, 2, 2)
    assert forecast["tokens"] > 3000
    assert not list(data.parent.glob("*compressed*"))
    assert "would be compressed" in run("compress", "data.jsonl", "--tokenizer", "estimate", "--dry-run").out


def test_a_dry_run_tells_the_cost_where_prices_are_known(run, data):
    (data.parent / ".stemma").mkdir()
    prices = "models:\n  mine:\n    base_url: http://127.0.0.1:9/v1\n    prices: {prompt: 1000000, completion: 0}\n"
    (data.parent / ".stemma" / "config.yaml").write_text(prices)
    trust_project(data.parent)
    command = ("compress", "data.jsonl", "--budget", "500", "--tokenizer", "estimate", "--dry-run", "--json")
    forecast = json.loads(run(*command, "-m", "mine").out)
    assert forecast["cost_usd"] == forecast["prompt_tokens"]
    assert json.loads(run(*command).out)["cost_usd"] == 0, "the embedded model costs nothing"
    assert json.loads(run(*command, "-m", "openai/gpt-5").out)["cost_usd"] is None


def test_a_model_named_by_a_flag_summarises(run, data):
    with endpoint() as served:
        told = run(
            "compress", "data.jsonl", "--budget", "500", "--tokenizer", served.url, "-m", "m",
            "--base-url", f"{served.url}/v1", "-c", "1",
        )  # fmt: skip
    assert told.code == 0, told.err
    assert "calls of m" in told.out
    assert len(served.prompts) == 2


def test_rows_that_fail_are_told_and_the_exit_code_says_so(run, data):
    (data.parent / "replies.jsonl").write_text('"one"\n')
    with data.open("a") as file:
        file.write("not json\n")
    told = run("compress", "data.jsonl", "--budget", "500", "--tokenizer", "estimate", "-m", "scripted:replies.jsonl")
    assert told.code == 1
    assert "1   failed, kept as they were" in told.out
    assert "data.jsonl:4" in told.out
    assert "the script of 'replies' has ended" in told.out
    assert len(list(load_trajectories(data.with_name("data_compressed.jsonl")))) == 3


def test_a_store_is_compressed_in_place(run, tmp_path):
    names = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
    graph = MessageGraph()
    for turn in agentic(12):
        message = {"role": names[turn["from"]], "content": turn["value"]}
        if message["role"] == "assistant":
            graph.record(message, Call(model="m"))
        else:
            graph.append(message)
    with open_store(tmp_path / "stemma.db") as store:
        store.save(graph, "a")
    told = run("compress", ".", "--budget", "500", *EXTRACTIVE)
    assert told.code == 0, told.err
    assert "1   compressed" in told.out
    with open_store(tmp_path / "stemma.db") as store:
        assert store.load("a").previous.reason == "compression"
    assert run("verify", "stemma.db").code == 0
    assert "in place" in run("compress", "stemma.db", "-o", "x", *EXTRACTIVE).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compress", "nowhere.jsonl", *EXTRACTIVE), "there is no nowhere.jsonl"),
        (("compress", "data.jsonl", "--summarizer", "extractive"), "no tokenizer 'moonshotai/Kimi-K2-Thinking'"),
        (("compress", "data.jsonl", "--tokenizer", "org/gone", "--summarizer", "extractive"), "give --tokenizer"),
        (("compress", "data.jsonl", "--config", "bad.yaml", *EXTRACTIVE), "bad.yaml: Object contains unknown field"),
        (("compress", "data.jsonl", "--config", "key.yaml", "--tokenizer", "estimate"), "NO_SUCH_KEY, which is not"),
        (("compress", "data.jsonl", "--sample-percent", "101", *EXTRACTIVE), "sample-percent"),
        (("compress", "data.jsonl", "--tokenizer", "estimate", "-m", "local"), "stemma models get"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line_and_nothing_is_written(run, data, monkeypatch, words, said):
    monkeypatch.setenv("XDG_CACHE_HOME", str(data.parent / "cache"))
    (data.parent / "bad.yaml").write_text("compression: {target: 1}\n")
    (data.parent / "key.yaml").write_text("summarization: {api_key_env: NO_SUCH_KEY}\n")
    told = run(*words)
    assert told.code == 1
    assert said in told.err
    assert len(told.err.splitlines()) == 1
    assert not list(data.parent.glob("data_compressed*"))
