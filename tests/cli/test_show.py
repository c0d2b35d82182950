"""One message in full, however it is named."""

import json
from pathlib import Path

import pytest

from cli.conftest import Run
from cli.conversations import by, say
from stemma import MessageGraph, open_store

ANSWER = """\
node     0cebd0e96ce6bef8b6356b2cc504a5bc95afd459f82263f6987426a176659a9f
message  979b674dfb8bfaae41f9d6d8ece03a2a75ab845dfd5395a0b150ad3fd5afa31c
at       demo@1:4, of 5
role     assistant
sampled  by qwen3-8b
saw      630c654ec6c705fd59b93ea73170740003c4d236aa3d696c393a2957ae342dd9
params   temperature=0.7
finish   stop
usage    completion_tokens=9  prompt_tokens=61
took     1.25 s
cost     $0.0004
tokens   3 sampled_ids

── reasoning ──
The tool says 25.

── content ──
There are 25 primes below 100.
"""


@pytest.mark.parametrize("name", ["demo@1", "demo@1:-1", "demo@1:4", "0cebd0e96c", "0CEBD0E96C", "979b674dfb"])
def test_a_message_is_shown_in_full_by_any_of_its_names(run: Run, demo_store: Path, name: str):
    assert run("show", name) == (0, ANSWER, "")


def test_a_shared_message_says_where_else_it_stands(run: Run, demo_store: Path):
    out = run("show", "demo@0:3").out
    assert "at            demo@0:3, of 5\nalso at       demo@1:3\n" in out
    assert "tool_call_id  c1\n" in out
    assert "subagent      demo/0: 5 messages, 0 versions, tip 53eb7cc23b\n" in out


def test_tool_calls_are_shown_with_their_raw_arguments(run: Run, tmp_path: Path):
    raw = '{"a": 1, "a": 2,\n "broken'
    call = {"id": "c9", "type": "function", "index": 7, "function": {"name": "search", "arguments": raw}}
    graph = MessageGraph([{"role": "assistant", "content": "Looking.", "tool_calls": [call], "x_extra": {"k": [1]}}])
    with open_store(tmp_path / "stemma.db") as store:
        store.save(graph, "g")
    out = run("show", "g").out
    assert "── content ──\nLooking.\n" in out
    assert f'── tool call 0: search c9 ──\n{raw}\n{{"index": 7}}\n' in out
    assert 'x_extra  {"k": [1]}\n' in out


def test_parts_of_a_content_lose_nothing(run: Run, tmp_path: Path):
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    with open_store(tmp_path / "stemma.db") as store:
        store.save(MessageGraph([say("user", parts)]), "g")
    assert 'see\n{"type": "image_url", "image_url": {"url": "data:,x"}}\n' in run("show", "g").out


def test_a_message_that_two_calls_made_shows_both(run: Run, tmp_path: Path):
    graph = MessageGraph([say("user", "a")])
    for model in ("one", "two"):
        graph.record(say("assistant", "b"), by(model))
        with graph.edit("resample"):
            graph.pop()
    graph.append(say("assistant", "b"))
    with open_store(tmp_path / "stemma.db") as store:
        store.save(graph, "g")
    out = run("show", "g").out
    assert "sampled  by one\n" in out
    assert "sampled  by two\n" in out
    assert "[one]  [two]" in run("log", "g").out


def test_json_has_the_whole_message_and_its_calls(run: Run, demo_store: Path):
    found = json.loads(run("show", "demo@1", "--json").out)
    assert list(found) == ["node", "message", "at", "index", "of", "role", "body", "calls", "subagents"]
    assert found["body"]["reasoning"] == "The tool says 25."
    assert found["calls"][0]["model"] == "qwen3-8b"
    assert found["calls"][0]["tokens"] == {"sampled_ids": 3}
    assert found["calls"][0]["cost"] == 0.0004
    assert json.loads(run("show", "demo@1:3", "--json").out)["subagents"][0]["graph"] == "demo/0"


def test_an_ambiguous_prefix_lists_its_candidates(run: Run, demo_store: Path):
    code, out, err = run("show", "9")
    assert (code, out) == (1, "")
    assert "'9' begins 2 ids: message 9c8d795984 at 'demo:4', message 979b674dfb at 'demo@1:4'" in err


def test_an_empty_graph_has_nothing_to_show(run: Run, tmp_path: Path):
    with open_store(tmp_path / "stemma.db") as store:
        store.save(MessageGraph(), "empty")
    assert run("show", "empty").code == 1
    assert run("log", "empty").code == 0
    assert run("log", "empty", "--graph") == (0, "", "")
    assert run("diff", "empty", "empty").code == 0
    assert "no messages" in run("log", "empty", "--mermaid").out
