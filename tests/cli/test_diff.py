"""Two lines side by side: what they share is folded, what changed is marked in any field."""

import json
from pathlib import Path

from cli.conftest import Run
from cli.conversations import asks, by, say
from stemma import MessageGraph, open_store

EDITED = """\
--- demo@1  5 messages
+++ demo@2  7 messages
  … 1 message in common
~ 1a7c5ce657 → 220394c771 user
    content: How many primes {+are there +}below 100?
  … 3 messages in common
+ ○ cf790463a1 user       And below 10?
+ ● 6ac90fe3a9 assistant  Four: 2, 3, 5 and 7.  [qwen3-8b]
"""

COMPACTED = """\
--- demo@2  7 messages
+++ demo  6 messages
  … 1 message in common
~ 220394c771 → ee7f4c6bc6 user
    content: [-How many primes-]{+(Earlier: there+} are [-there-]{+25 primes+} below 100[-?-]{+.)+}
- ○ f3e0befa46 assistant  → delegate({"task": "count primes below 100"})
- ○ c67e585213 tool       25
- ○ cd4758a46a assistant  There are 25 primes below 100.
  … 2 messages in common
+ ○ a32724ff0a user       Which of them is the largest?
+ ● 500b809449 assistant  7.  [qwen3-8b]
"""


def test_an_edit_and_a_compaction_read_like_this(run: Run, demo_store: Path):
    assert run("diff", "demo@1", "demo@2") == (0, EDITED, "")
    assert run("diff", "demo@2", "demo") == (0, COMPACTED, "")


def test_a_line_does_not_differ_from_itself(run: Run, demo_store: Path):
    code, out, _ = run("diff", "demo", "500b809449")
    assert code == 0
    assert out.splitlines()[2:] == ["  … 6 messages in common"]


def test_an_id_is_the_line_up_to_it(run: Run, demo_store: Path):
    out = run("diff", "demo:1", "demo").out
    assert out.splitlines()[0] == "--- demo  2 messages"
    assert "… 2 messages in common" in out


def test_every_field_is_compared(run: Run, tmp_path: Path):
    graph = MessageGraph([say("user", "a")])
    graph.record(asks("search", '{"q": "old words"}', "c1") | {"reasoning": "first\nsecond line"}, by())
    graph[1]["tool_calls"][0]["function"]["arguments"] = '{"q": "new words"}'
    graph[1]["reasoning"] = "first\nother line"
    graph[1]["x"] = True
    with open_store(tmp_path / "stemma.db") as store:
        store.save(graph, "g")
    out = run("diff", "g@0", "g").out
    assert '    tool_calls[0].function.arguments: {"q": "[-old-]{+new+} words"}\n' in out
    assert "    reasoning: first\n      [-second-]{+other+} line\n" in out
    assert "    x: {+true+}\n" in out


def test_long_texts_show_only_what_is_near_the_change(run: Run, tmp_path: Path):
    graph = MessageGraph([say("user", "before " * 500 + "old" + " after" * 500)])
    graph.append(say("assistant", "b"))
    graph[0]["content"] = "before " * 500 + "new" + " after" * 500
    graph[0]["huge"] = "y" * 50_000
    with open_store(tmp_path / "stemma.db") as store:
        store.save(graph, "g")
    lines = run("diff", "g@0", "g").out.splitlines()
    assert "before [-old-]{+new+} after" in lines[3]
    assert len(lines[3]) < 200
    assert lines[4].endswith("48,000 more characters+}")
    found = json.loads(run("diff", "g@0", "g", "--json").out)
    assert len(found["differences"][0]["fields"][1]["after"]) == 50_000


def test_json_says_the_same(run: Run, demo_store: Path):
    found = json.loads(run("diff", "demo@1", "demo@2", "--json").out)
    assert found["a"] == {"line": "demo@1", "messages": 5}
    kinds = [difference["kind"] for difference in found["differences"]]
    assert kinds == ["same", "changed", "same", "added", "added"]
    changed = found["differences"][1]
    assert changed["a"]["node"].startswith("1a7c5ce657")
    assert changed["fields"][0]["path"] == ["content"]
    assert changed["fields"][0]["words"][1] == ["+", "are there "]
    assert found["differences"][3]["a"] == {"index": 5, "messages": 0}
