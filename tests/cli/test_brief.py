"""Messages of any shape can be listed, drawn, shown and compared."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.conversations import by
from hostile import json_values, messages
from stemma import MessageGraph
from stemma.cli.address import resolve
from stemma.cli.brief import content_text, one_line, tool_calls, whole_content
from stemma.cli.comparison import Comparison
from stemma.cli.drawing import as_dict, as_line
from stemma.cli.lanes import rows
from stemma.cli.listing import line_as_dict, line_as_list
from stemma.cli.mermaid import diagram
from stemma.cli.show import _facts, _shown, _texts
from stemma.store import MemoryStore

FIELDS = ("content", "tool_calls", "reasoning", "reasoning_content", "tool_call_id", "name")
odd = st.dictionaries(st.sampled_from(FIELDS), json_values(), max_size=4)


@given(odd, odd, messages(), json_values())
def test_no_shape_of_a_message_is_too_odd(one: dict[str, Any], other: dict[str, Any], usual: dict[str, Any], any_: Any):
    graph = MessageGraph([usual, {"role": "tool", **one}])
    graph.record({"role": "assistant", **other}, by(params={"p": any_}, tools=[{"t": any_}], usage={"u": any_}))
    graph[1] = {"role": "tool", **other, "edited": any_}
    store = MemoryStore()
    store.save(graph, "g")
    place = resolve(store, "g")
    assert len(list(line_as_list(place, 80))) == 4
    assert line_as_dict(place)["messages"]
    assert all(as_line(row, 80) and as_dict(row) for row in rows(graph, "g"))
    assert list(diagram(graph, "g"))
    for name in ("g:0", "g:1", "g:2", "g@0"):
        shown = _shown(resolve(store, name))
        assert list(_facts(shown))
        list(_texts(shown["body"]))
    comparison = Comparison(place, resolve(store, "g@0"))
    assert list(comparison.as_lines(80))
    assert comparison.as_dict()


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"content": "a\n\n b\t"}, "a b"),
        ({"content": None}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image_url"}, "b", 7]}, "a [image_url] b 7"),
        ({"content": {"k": 1}}, '{"k": 1}'),
        ({"content": "", "reasoning": "so"}, "(thinking) so"),
        ({"content": "x", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, "x → f({})"),
        ({"tool_calls": "odd"}, "→ ?(odd)"),
        ({"tool_calls": [{"function": {"name": 1, "arguments": {"a": 2}}}]}, '→ 1({"a": 2})'),
    ],
)
def test_a_message_in_one_line(fields: dict[str, Any], line: str):
    assert one_line(fields, 100) == line


def test_a_huge_text_is_not_read_to_its_end():
    assert len(one_line({"content": "word " * 1_000_000}, 50)) <= 202
    assert content_text("a" * 10) == whole_content("a" * 10) == "a" * 10
    assert tool_calls({}) == []
