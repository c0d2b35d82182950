"""Tables, lists and drawings of a store, for people and as JSON."""

import json
from pathlib import Path

from cli.conftest import Run
from cli.conversations import head_edited_every_turn, say
from stemma import MessageGraph, open_store

TABLE = """\
NAME   RUN    MESSAGES  VERSIONS  CALLS  TIP
demo   first         6         3      5  500b809449
hello  –             1         0      0  71a3d94201
"""

LIST = """\
demo · 6 messages · 3 versions · 5 calls
○ 7ae7dad767 system     You are a careful assistant.
○ ee7f4c6bc6 user       (Earlier: there are 25 primes below 100.)  ⑂ @0 resample  ⑂ @1 edit  ⑂ @2 compaction
○ 23fe4839ff user       And below 10?
○ a1d5d4fa3d assistant  Four: 2, 3, 5 and 7.
○ a32724ff0a user       Which of them is the largest?
● 500b809449 assistant  7.  [qwen3-8b]
"""

OLD = """\
demo@0 · 5 messages · 3 versions · 5 calls
○ 7ae7dad767 system     You are a careful assistant.
○ 1a7c5ce657 user       How many primes below 100?  ⑂ @2 compaction
● 698f2754b8 assistant  → delegate({"task": "count primes below 100"})  [qwen3-8b]
○ 630c654ec6 tool       25  ⊃ demo/0
● 0582683f04 assistant  There are 24 primes below 100.  [qwen3-8b]  ⑂ @1 edit
"""


def test_the_graphs_of_a_store_are_a_table(run: Run, demo_store: Path):
    assert run("log") == (0, TABLE, "")


def test_an_empty_store_says_so(run: Run, tmp_path: Path):
    open_store(tmp_path / "stemma.db").close()
    assert run("log") == (0, "stemma.db has no graphs yet\n", "")
    assert json.loads(run("log", "--json").out)["graphs"] == []


def test_the_messages_of_a_line_are_a_list(run: Run, demo_store: Path):
    assert run("log", "demo") == (0, LIST, "")
    assert run("log", "demo@0") == (0, OLD, "")
    assert run("log", "demo/0").out.startswith("demo/0 · 5 messages · 0 versions · 2 calls\n")


def test_many_versions_that_leave_at_one_message_are_counted(run: Run, tmp_path: Path):
    with open_store(tmp_path / "stemma.db") as store:
        store.save(head_edited_every_turn(9), "clock")
    assert "it is 8 o'clock  ⑂ 8 versions\n" in run("log", "clock").out


def test_graphs_as_json(run: Run, demo_store: Path):
    found = json.loads(run("log", "--json").out)
    assert found["store"] == "stemma.db"
    assert list(found["graphs"][0]) == ["name", "run", "tip", "messages", "versions", "calls", "metadata"]
    assert found["graphs"][0]["tip"].startswith("500b809449")


def test_a_line_as_json(run: Run, demo_store: Path):
    found = json.loads(run("log", "demo@0", "--json").out)
    assert (found["graph"], found["version"]) == ("demo", 0)
    assert [message["role"] for message in found["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert found["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"task": "count primes below 100"}'
    assert found["messages"][3]["subagents"] == ["demo/0"]
    assert found["messages"][4]["sampled_by"] == ["qwen3-8b"]
    assert found["messages"][4]["node"] == found["tip"] == found["versions"][0]["tip"]
    assert [(v["version"], v["reason"], v["index"], v["replaced"], v["replacement"]) for v in found["versions"]] == [
        (0, "resample", 4, 1, 0),
        (1, "edit", 1, 1, 1),
        (2, "compaction", 1, 4, 1),
    ]


def test_a_drawing_as_json(run: Run, demo_store: Path):
    found = json.loads(run("log", "demo", "--graph", "--json").out)
    assert found["graph"] == "demo"
    nodes = [row for row in found["rows"] if row["kind"] == "node"]
    assert sum(row["tip"] for row in nodes) == 1
    assert [row["ends"] for row in nodes if row["ends"]] == [[0], [1], [2]]
    assert {row["graph"] for row in nodes} == {"demo", "demo/0", "demo/0/0"}
    forks = [(row["version"], row["reason"], row["lane"]) for row in found["rows"] if row["kind"] == "fork"]
    assert forks == [(1, "edit", 0), (0, "resample", 1), (2, "compaction", 0)]


def test_the_only_graph_of_a_store_needs_no_name(run: Run, tmp_path: Path):
    with open_store(tmp_path / "stemma.db") as store:
        store.save(MessageGraph([say("user", "alone")]), "one")
    assert "alone" in run("log", "--graph").out
    assert "alone" in run("log", "--mermaid").out


def test_long_and_many_lined_texts_fit_into_one_line(run: Run, tmp_path: Path):
    with open_store(tmp_path / "stemma.db") as store:
        store.save(MessageGraph([say("user", "one\n\n  two\t" + "three " * 100_000)]), "long")
    line = run("log", "long").out.splitlines()[1]
    assert len(line) <= 120
    assert line.endswith("…")
    assert "one two three" in line
