"""Token exports and their proof, by the commands."""

import asyncio
import json
from pathlib import Path

import pytest

from cli.conftest import Run
from embedded import gguf, smollm2
from stemma import MessageGraph, open_store
from stemma.models.protocol import Request
from token_conversations import Chat, Words, user


@pytest.fixture
def token_store(tmp_path: Path) -> Path:
    """Two samples of one prompt, one of them edited; a call without tokens, and one under an ephemeral prompt."""
    words, path = Words(), tmp_path / "stemma.db"
    with open_store(path) as store:
        for sample in range(2):
            chat = Chat(user("hi there"), words=words).says("hello").hears("and").says(f"answer{sample}")
            if sample:
                chat.graph[0]["content"] = "hi you"
                chat.hears("so").says("well").hears("?").says("text", tokens=False)
            else:
                chat.hears("psst").says("secretly", extra={"ephemeral": "CANARY"})
            about = {"key": "k", "ordinal": 0, "sample": sample, "reward": float(sample)}
            store.save(chat.graph, f"k-0-{sample}", metadata=about)
    return path


@pytest.mark.parametrize("trainer", ["tokens", "atropos", "trl-grpo", "verl", "slime", "skyrl", "tinker", "tree"])
def test_what_is_exported_is_proven(run: Run, token_store: Path, trainer: str):
    code, out, err = run("export", "stemma.db", "--for", trainer, "--out", "out")
    assert (code, err) == (0, "")
    trained = 4 if trainer in ("trl-grpo", "verl") else 5  # those take one sequence a rollout
    assert f"{trained} of 7 trained, each exactly once" in out
    assert ("1 × split  2 sampled tokens" in out) == (trained == 4)
    assert "1 × edit  e.g. k-0-1 at token 2" in out
    assert "1 × ephemeral  2 sampled tokens" in out
    assert "1 × no tokens" in out
    code, out, err = run("verify", "out")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("proven: root ")
    assert f"L2 token ids   {trained} calls" in out


def test_one_changed_token_is_found(run: Run, token_store: Path, tmp_path: Path):
    run("export", "stemma.db", "--for", "tokens", "--out", "out/rows.jsonl")
    data = tmp_path / "out" / "rows.jsonl"
    first, *rest = data.read_text().splitlines()
    row = json.loads(first)
    row["input_ids"][0] += 1
    data.write_text("\n".join([json.dumps(row), *rest]) + "\n")
    code, out, _ = run("verify", "out/rows.jsonl")
    assert code == 2
    assert "row 0: what stands before call" in out
    told = json.loads(run("verify", "out", "--json").out)
    assert not told["sound"]
    assert told["calls_by_level"] == {"L0": 1, "L2": 5}


@pytest.mark.parametrize("file", ["train.jsonl", "receipts.jsonl", "manifest.json"])
def test_a_file_that_is_cut_short_ends_with_2_and_says_which(run: Run, token_store: Path, tmp_path: Path, file: str):
    run("export", "stemma.db", "--for", "slime", "--out", "out")
    damaged = tmp_path / "out" / file
    damaged.write_bytes(damaged.read_bytes()[:-50])
    code, out, err = run("verify", "out")
    assert (code, err) == (2, "")
    assert ("receipts line" if file == "receipts.jsonl" else file) in out
    code, out, _ = run("verify", "out", "--json")
    assert code == 2
    assert not json.loads(out)["sound"]
    damaged.unlink()
    code, out, _ = run("verify", "out")
    assert code == 2
    assert f"missing  {file}" in out


def test_what_is_ephemeral_is_in_an_export_only_if_one_says_so(run: Run, token_store: Path, tmp_path: Path):
    told = json.loads(run("export", "stemma.db", "--for", "tokens", "--out", "a", "--json").out)
    assert told["excluded"] == {"ephemeral": 1, "no tokens": 1}
    told = json.loads(run("export", "stemma.db", "--for", "tokens", "--out", "b", "--with-ephemeral", "--json").out)
    assert told["excluded"] == {"no tokens": 1}
    assert told["off_policy_rows"] == 0
    for file in (tmp_path / "a").iterdir():
        assert b"CANARY" not in file.read_bytes()
    code, _, err = run("export", "stemma.db", "--for", "tokens", "--out", "c", "--distill")
    assert code == 1
    assert "--tokenizer" in err
    assert run("export", "stemma.db", "--for", "tokens", "--out", "c", "--distill", "--with-ephemeral").code == 1


def test_calls_that_are_too_long_or_of_another_model_are_counted(run: Run, token_store: Path):
    told = json.loads(run("export", "stemma.db", "--for", "tokens", "--out", "a", "--max-length", "8", "--json").out)
    assert told["excluded"]["over-long"] == 3
    told = json.loads(run("export", "stemma.db", "--for", "tokens", "--out", "b", "--model", "x", "--json").out)
    assert told["excluded"]["other model"] == 6
    assert run("verify", "b").code == 0


def test_files_of_text_have_no_tokens_to_export(run: Run, tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"conversations": []}\n')
    code, _, err = run("export", "t.jsonl", "--for", "tokens", "--out", "out")
    assert code == 1
    assert "is no store" in err


def test_logprobs_of_the_embedded_model_are_computed_again(run: Run, tmp_path: Path):
    model = smollm2(params={"max_tokens": 8, "seed": 1})
    graph = MessageGraph([{"role": "user", "content": "Name a colour."}])

    async def converse() -> None:
        for question in ("Another one.", "Thanks."):
            reply = await model.reply(Request(messages=graph.messages()))
            graph.record(reply.message, reply.call)
            graph.append({"role": "user", "content": question})
        await model.close()

    asyncio.run(converse())
    with open_store(tmp_path / "stemma.db") as store:
        store.save(graph, "a")
    told = json.loads(run("export", "stemma.db", "--for", "tokens", "--out", "out", "--json").out)
    assert told["counts"]["rows"] == 1  # the second prompt goes on from what was sampled
    again = json.loads(run("verify", "out", "--recompute", "1", "--gguf", str(gguf()), "--json").out)["recomputed"]
    assert again["tokens"] == told["counts"]["trained_tokens"]
    assert again["mean"] < 0.06
