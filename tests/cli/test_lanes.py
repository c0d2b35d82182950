"""The drawing of a small graph, pinned; large ones stay narrow, linear and free of recursion."""

from collections.abc import Callable
from math import log2
from pathlib import Path

from cli.conftest import Run
from cli.conversations import by, demo, edited_from_the_end, head_edited_every_turn, say, turn
from stemma import MessageGraph
from stemma.cli.drawing import as_line
from stemma.cli.lanes import rows
from stemma.cli.mermaid import diagram

DEMO = """\
○ 7ae7dad767 system     You are a careful assistant.
├─╮ @1 edit: 1 message → 1
│ ○ 1a7c5ce657 user       How many primes below 100?
│ ● 698f2754b8 assistant  → delegate({"task": "count primes below 100"})  [qwen3-8b]
│ ○ 630c654ec6 tool       25
│ ├─⊃ demo/0 subagent, 5 messages
│ │ ○ 04025a0af8 system     You count things.
│ │ ○ 7d60063ddd user       Count the primes below 100.
│ │ ● 41cba6b145 assistant  → delegate({"task": "check"})  [smollm2]
│ │ ○ fa24f1ae69 tool       Yes.
│ │ ├─⊃ demo/0/0 subagent, 2 messages
│ │ │ ○ 198fa093c9 user       Is 25 right?
│ │ │ ● 75c2f3484c assistant  Yes.  [smollm2]
│ │ ● 53eb7cc23b assistant  25  [smollm2]
│ ├─╮ @0 resample: 1 message → 0
│ │ ● 0582683f04 assistant  There are 24 primes below 100.  [qwen3-8b]  @0
│ ● 0cebd0e96c assistant  There are 25 primes below 100.  [qwen3-8b]  @1
├─╮ @2 compaction: 4 messages → 1
│ ○ 220394c771 user       How many primes are there below 100?
│ ○ f3e0befa46 assistant  → delegate({"task": "count primes below 100"})
│ ○ c67e585213 tool       25
│ ├─⊃ demo/0 subagent, drawn above
│ ○ cd4758a46a assistant  There are 25 primes below 100.
│ ○ cf790463a1 user       And below 10?
│ ● 6ac90fe3a9 assistant  Four: 2, 3, 5 and 7.  [qwen3-8b]  @2
○ ee7f4c6bc6 user       (Earlier: there are 25 primes below 100.)
○ 23fe4839ff user       And below 10?
○ a1d5d4fa3d assistant  Four: 2, 3, 5 and 7.
○ a32724ff0a user       Which of them is the largest?
● 500b809449 assistant  7.  [qwen3-8b]  ← tip
"""

HEAD_EDITED = """\
├─╮ @0 edit: 1 message → 1
│ ○ system     it is 0 o'clock
│ ○ user       question 0
│ ● assistant  answer 0  [m]  @0
├─╮ @1 edit: 1 message → 1
│ ○ system     it is 1 o'clock
│ ⋮ 3 messages that stand in the line that replaced this one
│ ● assistant  answer 1  [m]  @1
├─╮ @2 edit: 1 message → 1
│ ○ system     it is 2 o'clock
│ ⋮ 5 messages that stand in the line that replaced this one
│ ● assistant  answer 2  [m]  @2
○ system     it is 3 o'clock
○ user       question 0
○ assistant  answer 0
○ user       question 1
○ assistant  answer 1
○ user       question 2
○ assistant  answer 2
○ user       question 3
● assistant  answer 3  [m]  ← tip
"""

FROM_THE_END = """\
○ system     Hello
├─╮ @2 edit: 1 message → 1
│ ○ user       question 0
│ ● assistant  answer 0  [m]
│ ├─╮ @2 goes on
│ │ ⋮ 4 messages that stand in the line that replaced this one  @2
│ ├─ @1 edit: 1 message → 1
│ ○ user       question 1
│ ● assistant  answer 1  [m]
│ ├─╮ @0 edit: 1 message → 1
│ │ ○ user       question 2
│ │ ● assistant  answer 2  [m]  @0
│ ○ user       edited
│ ○ assistant  answer 2  @1
○ user       edited
○ assistant  answer 0
○ user       edited
○ assistant  answer 1
○ user       edited
○ assistant  answer 2  ← tip
"""

CUT_SHORT = """\
○ user       a
● assistant  b  [m]  ← tip
╰─╮ @0 edit: 2 messages → 0
  ○ user       c
  ● assistant  d  [m]  @0
"""


def drawn(graph: MessageGraph) -> str:
    """The drawing without ids."""
    lines = []
    for row in rows(graph, "g"):
        pieces = [piece if isinstance(piece, str) else piece[0] for piece in as_line(row, 120)]
        if row.kind == "node":
            del pieces[2]
            pieces[2] = pieces[2].removeprefix(" ")
        lines.append("".join(pieces).rstrip() + "\n")
    return "".join(lines)


def test_the_demo_is_drawn_like_this(run: Run, demo_store: Path):
    assert run("log", "demo", "--graph") == (0, DEMO, "")


def test_a_head_edited_every_turn_is_a_short_branch_for_each_turn():
    assert drawn(head_edited_every_turn(4)) == HEAD_EDITED


def test_a_line_that_was_cut_short_goes_on_in_a_lane_of_its_own():
    graph = MessageGraph([say("user", "a")])
    graph.record(say("assistant", "b"), by("m"))
    graph.append(say("user", "c"))
    graph.record(say("assistant", "d"), by("m"))
    del graph[2:]
    assert drawn(graph) == CUT_SHORT


def test_edits_from_the_end_stay_in_few_lanes():
    assert drawn(edited_from_the_end(3)) == FROM_THE_END
    graph = edited_from_the_end(300)
    found = list(rows(graph, "g"))
    assert max(len(row.lanes) for row in found) <= 2 + log2(300)
    assert len(found) <= 6 * (len(graph) + len(graph.versions))


def test_five_thousand_messages_and_three_hundred_versions_are_linear():
    graph = MessageGraph([say("system", "Hello")])
    for number in range(2_500):
        turn(graph, number)
        if number % 100 < 12:
            graph[(number * 7919) % len(graph)]["content"] = f"edit {number}"
    assert len(graph.versions) >= 290
    out = drawn(graph)
    assert out.count("\n") <= len(graph) + 6 * len(graph.versions) + 3 * len(graph.calls())
    assert all(f"@{number}\n" in out for number in range(len(graph.versions)))
    assert sum(1 for _ in diagram(graph, "big")) <= 8 * (len(graph) + 6 * len(graph.versions))


def test_subagents_are_drawn_at_any_depth_without_recursion(with_short_stack: Callable[[Callable[[], None]], None]):
    graph = MessageGraph([say("user", "the innermost")])
    for depth in range(400):
        outer = MessageGraph([say("user", f"depth {depth}")])
        outer.append(say("tool", "done", tool_call_id="c"), contains=graph)
        graph = outer

    def promise() -> None:
        found = list(rows(graph, "g"))
        assert len(found) == 400 * 3 + 1
        assert all(len(as_line(row, 120)[0][0]) < 80 for row in found)
        assert found[-1].branch.message(0).get("content") == "the innermost"

    with_short_stack(promise)


def test_a_subagent_whose_tool_result_is_on_no_line_is_still_drawn():
    graph = MessageGraph([say("user", "a")])
    graph.append(say("tool", "b", tool_call_id="c"), contains=MessageGraph([say("user", "inner")]))
    graph.pop()
    assert [row.kind for row in rows(graph, "g")] == ["node", "subagent", "node"]


def test_every_node_is_drawn_or_folded(run: Run, demo_store: Path):
    kinds = [row.kind for row in rows(demo(), "demo")]
    assert kinds.count("node") == 24
    assert kinds.count("fork") == 3
    assert kinds.count("subagent") == 2
    assert kinds.count("again") == 1
