"""Promises of telling a reply's parts apart while it comes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stemma.models.local_pieces import Pieces

REPLIES = [
    "<think>\nIs it so?\n</think>\nYes, a < b.",
    '<think>\nI look.\n</think>\n<tool_call>\n{"name": "ls"}\n</tool_call>\n<tool_call>\n{"name": "pwd"}\n</tool_call>',
    "<think>\ncut in the mid",
    "<thi",
    "",
]


def told(texts):
    seen = []
    pieces = Pieces(seen.append)
    for text in texts:
        pieces.feed(text)
    pieces.end()
    assert all(delta.text for delta in seen)
    return {kind: "".join(d.text for d in seen if d.kind == kind) for kind in ("reasoning", "text", "tool")}


def cut(text, places):
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@given(st.sampled_from(REPLIES), st.lists(st.integers(0, 200)))
def test_however_a_reply_is_cut_its_parts_are_the_same(reply, places):
    assert told(cut(reply, places)) == told([reply])


def test_thought_answer_and_calls_are_told_apart():
    assert told(REPLIES[0]) == {"reasoning": "Is it so?", "text": "Yes, a < b.", "tool": ""}
    assert told(REPLIES[1])["tool"] == '{"name": "ls"}{"name": "pwd"}'
    assert told(REPLIES[3]) == {"reasoning": "", "text": "<thi", "tool": ""}


def test_a_thought_is_told_before_it_ends():
    seen = []
    Pieces(seen.append).feed("<think>\nWell")
    assert [(delta.kind, delta.text) for delta in seen] == [("reasoning", "Well")]
