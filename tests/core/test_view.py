"""`graph[i]` is a dict to whoever reads it, and an edit of the graph to whoever writes to it, at any depth."""

import copy
import gc
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from stemma import MessageGraph
from stemma.core.message import Message
from stemma.errors import BadMessage, StaleView

SYSTEM = {"role": "system", "content": "S"}
USER = {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "text", "text": "V"}]}
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}},
        {"id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}},
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "T"}
ANSWER = {"role": "assistant", "content": "A", "x": {"deep": {"deeper": [1, {"deepest": True}]}}}

LINE = [SYSTEM, USER, ASKS, RESULT, ANSWER]


def conversation() -> MessageGraph:
    return MessageGraph(copy.deepcopy(LINE))


def changed(index: int, change: Callable[[Any], None]) -> list[dict[str, Any]]:
    """The line with one message changed, as a plain list would have it."""
    line = copy.deepcopy(LINE)
    change(line[index])
    return line


def assert_plain(value: Any) -> None:
    assert type(value) in (dict, list, str, int, float, bool, type(None))
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        assert_plain(item)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_setting_the_content_of_a_message_keeps_the_old_line():
    graph = conversation()
    graph[0]["content"] = "my edit"
    assert graph.messages() == changed(0, lambda m: m.update(content="my edit"))
    assert [version.messages() for version in graph.versions] == [LINE]
    assert (graph.previous.index, graph.previous.reason) == (0, "edit")
    assert graph.previous.replaced == [SYSTEM]
    assert graph.previous.replacement == [{"role": "system", "content": "my edit"}]


def test_a_write_into_the_arguments_of_a_tool_call_reaches_the_graph():
    graph = conversation()
    graph[2]["tool_calls"][0]["function"]["arguments"] = '{"path": "b"}'
    assert graph.messages()[2]["tool_calls"][0]["function"]["arguments"] == '{"path": "b"}'
    assert [version.messages() for version in graph.versions] == [LINE]


EDITS: list[tuple[int, Callable[[Any], Any]]] = [
    (0, lambda m: m.update(content="x", name="n")),
    (0, lambda m: m.update({"content": "x"}, name="n")),
    (0, lambda m: m.update([("content", "x")])),
    (0, lambda m: m.__ior__({"content": "x"})),
    (0, lambda m: m.setdefault("name", [{}])),
    (0, lambda m: m.__delitem__("content")),
    (0, lambda m: m.pop("content")),
    (4, lambda m: m.popitem()),
    (4, lambda m: m["x"].clear()),
    (4, lambda m: m["x"]["deep"]["deeper"][1].update(deepest=1)),
    (4, lambda m: m["x"]["deep"]["deeper"].__setitem__(0, True)),
    (4, lambda m: m["x"]["deep"]["deeper"].__imul__(2)),
    (2, lambda m: m["tool_calls"].append({"id": "c3", "function": {"name": "n"}})),
    (2, lambda m: m["tool_calls"].extend([{"id": "c3"}, {"id": "c4"}])),
    (2, lambda m: m["tool_calls"].__iadd__(({"id": "c3"},))),
    (2, lambda m: m["tool_calls"].insert(0, {"id": "c0"})),
    (2, lambda m: m["tool_calls"].insert(-1, {"id": "c0"})),
    (2, lambda m: m["tool_calls"].pop()),
    (2, lambda m: m["tool_calls"].pop(0)),
    (2, lambda m: m["tool_calls"].remove(ASKS["tool_calls"][1])),
    (2, lambda m: m["tool_calls"].clear()),
    (2, lambda m: m["tool_calls"].reverse()),
    (2, lambda m: m["tool_calls"].sort(key=lambda c: c["id"], reverse=True)),
    (2, lambda m: m["tool_calls"].__setitem__(0, {"id": "c0"})),
    (2, lambda m: m["tool_calls"].__setitem__(slice(None), [])),
    (2, lambda m: m["tool_calls"].__setitem__(slice(None, None, 2), [{"id": "c0"}])),
    (2, lambda m: m["tool_calls"].__delitem__(0)),
    (2, lambda m: m["tool_calls"].__delitem__(slice(1, None))),
    (1, lambda m: m["content"][0].__setitem__("text", "x")),
    (1, lambda m: m["content"].append({"type": "image_url", "image_url": {"url": "u"}})),
]


@pytest.mark.parametrize(("index", "change"), EDITS)
def test_every_way_to_change_a_dict_or_a_list_in_it_is_an_edit_of_the_message(index, change):
    graph = conversation()
    change(graph[index])
    assert graph.messages() == changed(index, change)
    assert graph[index] == graph.messages()[index]
    assert [version.messages() for version in graph.versions] == [LINE]


@pytest.mark.parametrize(("index", "change"), EDITS)
def test_a_view_goes_on_working_after_a_write(index, change):
    graph = conversation()
    view = graph[index]
    change(view)
    view["again"] = {"and": ["again"]}
    view["again"]["and"].append(view["role"])
    assert graph[index] is view
    assert graph.messages()[index]["again"] == {"and": ["again", LINE[index]["role"]]}


def test_what_setdefault_returns_can_be_written_to():
    graph = conversation()
    graph[0].setdefault("x", {"list": []})["list"].append(1)
    graph[0].setdefault("x", {})["list"].append(2)
    assert graph.messages()[0]["x"] == {"list": [1, 2]}


def test_an_edit_that_changes_nothing_is_no_edit():
    graph = conversation()
    graph[0]["content"] = "S"
    graph[1]["content"][0]["text"] = "U"
    graph[2]["tool_calls"] = copy.deepcopy(ASKS["tool_calls"])
    graph[0].pop("not there", None)
    graph[4]["x"].update({})
    graph[4] |= {}
    graph[4]["x"]["deep"]["deeper"] *= 1
    assert graph.versions == ()


def test_true_one_and_one_point_zero_are_edits_of_each_other():
    graph = MessageGraph([{"role": "assistant", "content": "", "n": True}])
    for value in (1, 1.0, True, True):
        graph[0]["n"] = value
    assert [type(version[0]["n"]) for version in graph.versions] == [bool, int, float]
    assert type(graph[0]["n"]) is bool


def test_a_loop_over_the_messages_edits_all_of_them():
    graph = conversation()
    for message in graph:
        message["content"] = "redacted"
    assert [m["content"] for m in graph.messages()] == ["redacted"] * 5
    assert len(graph.versions) == 5


def test_the_messages_of_a_slice_edit_the_graph():
    graph = conversation()
    for message in graph[1:4:2]:
        message["content"] = "redacted"
    graph[-1:][0]["content"] = "last"
    assert [m["content"] for m in graph.messages()] == ["S", "redacted", None, "redacted", "last"]


def test_what_is_put_in_is_copied():
    graph = conversation()
    mine = {"deep": [1]}
    graph[0]["x"] = mine
    graph[0]["y"] = [mine, mine]
    mine["deep"].append(2)
    graph[0]["y"][0]["deep"].append(3)
    assert graph.messages()[0]["x"] == {"deep": [1]}
    assert graph.messages()[0]["y"] == [{"deep": [1, 3]}, {"deep": [1]}]


def test_a_part_put_elsewhere_in_its_message_is_copied_too():
    graph = conversation()
    view = graph[1]
    view["again"] = view["content"]
    view["content"].append(view["content"][0])
    view["content"] *= 2
    view["content"][0]["text"] = "changed"
    texts = [part["text"] for part in graph.messages()[1]["content"]]
    assert texts == ["changed", "V", "U", "U", "V", "U"]
    assert graph.messages()[1]["again"] == USER["content"]


def test_a_part_of_one_message_put_into_another_is_copied():
    graph = conversation()
    graph[0]["content"] = graph[1]["content"]
    graph[0]["content"][0]["text"] = "changed"
    assert graph.messages()[1] == USER
    assert graph.messages()[0]["content"][0]["text"] == "changed"


def test_a_part_that_would_contain_itself_is_refused():
    graph = conversation()
    with pytest.raises(BadMessage):
        graph[1]["content"].append(graph[1])
    assert graph == LINE


def test_a_view_of_one_graph_can_be_appended_to_another_and_is_copied():
    graph, other = conversation(), MessageGraph()
    other.append(graph[4])
    other[0] |= {"content": "changed"}
    other[0]["x"]["deep"]["deeper"].clear()
    assert graph == LINE


# ── stale views ──────────────────────────────────────────────────────────────────────────────────────────────────

MAKES_MESSAGE_2_STALE: list[Callable[[MessageGraph], Any]] = [
    lambda graph: graph.insert(0, SYSTEM),
    lambda graph: graph.insert(2, {"role": "user", "content": "new"}),
    lambda graph: graph.pop(0),
    lambda graph: graph.pop(2),
    lambda graph: graph.remove(ASKS),
    lambda graph: graph.__delitem__(2),
    lambda graph: graph.__delitem__(slice(0, 2)),
    lambda graph: graph.__delitem__(slice(None, None, 2)),
    lambda graph: graph.__setitem__(2, {"role": "assistant", "content": "other"}),
    lambda graph: graph.__setitem__(slice(1, 3), [ANSWER]),
    lambda graph: graph.__setitem__(slice(None, None, 2), [USER, USER, USER]),
    lambda graph: graph.clear(),
    lambda graph: graph.reverse(),
]


@pytest.mark.parametrize("disturb", MAKES_MESSAGE_2_STALE)
def test_a_stale_view_raises_and_writes_nowhere(disturb):
    graph = conversation()
    view = graph[2]
    disturb(graph)
    line, versions = graph.messages(), len(graph.versions)
    with pytest.raises(StaleView, match=r"take graph\[i\] again"):
        view["content"] = "lost"
    assert view == ASKS
    assert (graph.messages(), len(graph.versions)) == (line, versions)


@pytest.mark.parametrize("disturb", MAKES_MESSAGE_2_STALE)
@pytest.mark.parametrize(
    "write",
    [
        lambda calls: calls.append({}),
        lambda calls: calls.clear(),
        lambda calls: calls[0]["function"].update(name="x"),
        lambda calls: calls[1]["function"].pop("name"),
        lambda calls: calls[0].__delitem__("id"),
        lambda calls: calls.__imul__(2),
    ],
)
def test_the_parts_of_a_stale_view_are_stale_too(disturb, write):
    graph = conversation()
    calls = graph[2]["tool_calls"]
    disturb(graph)
    line, versions = graph.messages(), len(graph.versions)
    with pytest.raises(StaleView):
        write(calls)
    assert calls == ASKS["tool_calls"]
    assert (graph.messages(), len(graph.versions)) == (line, versions)


@pytest.mark.parametrize(
    "harmless",
    [
        lambda graph: graph.append(USER),
        lambda graph: graph.extend([USER, ASKS]),
        lambda graph: graph.insert(3, USER),
        lambda graph: graph.pop(),
        lambda graph: graph[1].update(content="x"),
        lambda graph: graph[3].update(content="x"),
        lambda graph: graph.__setitem__(slice(3, None), []),
        lambda graph: graph.__setitem__(2, copy.deepcopy(ASKS)),
        lambda graph: graph.fork().clear(),
        lambda graph: gc.collect(),
    ],
)
def test_a_view_whose_message_stands_where_it_stood_is_not_stale(harmless):
    graph = conversation()
    view, function = graph[2], graph[2]["tool_calls"][0]["function"]
    harmless(graph)
    function["name"] = "write"
    view["content"] = "still here"
    assert graph.messages()[2]["content"] == "still here"
    assert graph.messages()[2]["tool_calls"][0]["function"]["name"] == "write"


def test_a_part_that_left_its_message_writes_nowhere():
    graph = conversation()
    calls = graph[2]["tool_calls"]
    first, function = calls[0], calls[0]["function"]
    popped = calls.pop(0)
    after = graph.messages()
    for write in (lambda: first.update(id="x"), lambda: function.update(name="x")):
        with pytest.raises(StaleView):
            write()
    popped["function"]["name"] = "x"
    assert graph.messages() == after

    replaced = graph[2]["tool_calls"]
    graph[2]["tool_calls"] = []
    with pytest.raises(StaleView):
        replaced.append({})
    assert graph.messages()[2]["tool_calls"] == []


def test_one_of_two_equal_messages_is_stale_once_a_message_before_it_is_gone():
    graph = MessageGraph([SYSTEM, RESULT, RESULT, ANSWER])
    second = graph[2]
    del graph[0]
    with pytest.raises(StaleView):
        second["content"] = "lost"
    assert graph == [RESULT, RESULT, ANSWER]


def test_two_reads_of_a_message_are_the_same_dict():
    graph = conversation()
    one, other = graph[2], graph[-3]
    assert one is other
    one["content"] = "x"
    assert other["content"] == "x"
    assert graph[2]["tool_calls"] is one["tool_calls"]
    assert list(graph)[2] is one
    assert graph[1:3][1] is one


# ── refused writes ───────────────────────────────────────────────────────────────────────────────────────────────

NAN = float("nan")
REFUSED: list[tuple[int, str, Callable[[Any], Any]]] = [
    (0, "message['content']", lambda m: m.__setitem__("content", NAN)),
    (0, "message['x'][1]['y']", lambda m: m.__setitem__("x", [1, {"y": NAN}])),
    (0, "message['b']", lambda m: m.update(a=1, b=NAN)),
    (0, "message['b']", lambda m: m.__ior__({"a": 1, "b": {1, 2}})),
    (0, "message['a']", lambda m: m.setdefault("a", 2**64)),
    (0, "message has the key 1", lambda m: m.__setitem__(1, "x")),
    (0, "role", lambda m: m.clear()),
    (0, "role", lambda m: m.pop("role")),
    (0, "role", lambda m: m.__delitem__("role")),
    (0, "role", lambda m: m.update(role="")),
    (0, "role", lambda m: m.update(role=None)),
    (1, "message['content'][0]['text']", lambda m: m["content"][0].update(text=NAN)),
    (
        2,
        "message['tool_calls'][1]['function']['arguments']",
        lambda m: m["tool_calls"][1]["function"].update(name="x", arguments=NAN),
    ),
    (2, "message['tool_calls'][3]", lambda m: m["tool_calls"].extend([{}, NAN])),
    (2, "message['tool_calls'][0]", lambda m: m["tool_calls"].insert(0, NAN)),
    (2, "message['tool_calls'][0]", lambda m: m["tool_calls"].__setitem__(slice(None), [NAN])),
    (4, "message['x']['deep']['deeper'][1]['deepest']", lambda m: m["x"]["deep"]["deeper"][1].update(deepest=NAN)),
]


@pytest.mark.parametrize(("index", "place", "write"), REFUSED)
def test_a_refused_write_names_the_place_and_changes_nothing(index, place, write):
    graph = conversation()
    view = graph[index]
    order = json.dumps(view)
    with pytest.raises(BadMessage) as refusal:
        write(view)
    assert place in str(refusal.value)
    assert json.dumps(view) == order
    assert graph == LINE
    assert graph.versions == ()
    view["content"] = "and can be written to as before"
    assert graph.messages()[index]["content"] == "and can be written to as before"


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda m: m.__delitem__("not there"), KeyError),
        (lambda m: m.pop("not there"), KeyError),
        (lambda m: m["empty"].popitem(), KeyError),
        (lambda m: m["calls"].pop(), IndexError),
        (lambda m: m["calls"].__setitem__(3, {}), IndexError),
        (lambda m: m["calls"].remove("x"), ValueError),
        (lambda m: m["mixed"].sort(), TypeError),
        (lambda m: m["mixed"].__setitem__(slice(None, None, 2), []), ValueError),
        (lambda m: m.update(5), TypeError),
        (lambda m: m["mixed"].extend(5), TypeError),
    ],
)
def test_what_a_dict_or_list_refuses_is_refused_in_the_same_way(write, problem):
    start = {"role": "user", "content": "", "empty": {}, "calls": [], "mixed": [3, "x", 1, None]}
    for message in (copy.deepcopy(start), MessageGraph([start])[0]):
        with pytest.raises(problem):
            write(message)
        assert message == start


def test_a_write_into_an_iterator_that_breaks_off_changes_nothing():
    def three_and_then_a_fault():
        yield from ({}, {}, {})
        raise OSError("the source is gone")

    graph = conversation()
    with pytest.raises(OSError, match="gone"):
        graph[2]["tool_calls"].extend(three_and_then_a_fault())
    assert graph == LINE
    assert graph[2] == ASKS


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_popped_is_plain():
    graph = conversation()
    for taken in (
        graph[2]["tool_calls"].pop(0),
        graph[2].pop("tool_calls"),
        graph[4]["x"].popitem()[1],
        graph[4].pop("not there", [{}]),
        graph.pop(1),
    ):
        assert_plain(taken)


def test_a_view_is_a_dict_to_every_reader():
    graph = conversation()
    view = graph[2]
    assert isinstance(view, dict)
    assert isinstance(view["tool_calls"], list)
    assert isinstance(view["tool_calls"][0]["function"], dict)
    assert json.loads(json.dumps(view)) == ASKS
    assert json.loads(json.dumps(graph.messages())) == LINE
    assert json.loads(json.dumps(list(graph))) == LINE
    assert (view, {**view}, dict(view), view | {}) == (ASKS, ASKS, ASKS, ASKS)
    assert view.get("name", "none") == "none"
    assert list(view) == ["role", "content", "tool_calls"]
    assert view["tool_calls"][:1] + view["tool_calls"][1:] == ASKS["tool_calls"]
    assert repr(view) == repr(ASKS)
    match view:
        case {"role": "assistant", "tool_calls": [{"id": first}, *_]}:
            assert first == "c1"
        case _:
            pytest.fail("a view is a mapping to a match statement")


def test_messages_gives_plain_dicts_of_its_own_each_time():
    graph = conversation()
    assert_plain(graph.messages())
    graph.messages()[2]["tool_calls"].clear()
    assert graph == LINE


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda view: pickle.loads(pickle.dumps(view)), dict, lambda view: view.copy()],
)
def test_a_copy_of_a_view_is_a_plain_dict_that_edits_nothing(duplicate):
    graph = conversation()
    copied = duplicate(graph[0])
    assert type(copied) is dict
    copied["content"] = "changed"
    assert graph == LINE


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda view: pickle.loads(pickle.dumps(view))])
def test_a_deep_copy_is_plain_to_the_bottom(duplicate):
    graph = conversation()
    for part in (graph[2], graph[2]["tool_calls"], graph[2]["tool_calls"][0], graph[2:3]):
        copied = duplicate(part)
        assert copied == part
        assert_plain(copied)
    duplicate(graph[2])["tool_calls"].clear()
    assert graph == LINE


def test_a_view_is_taken_for_the_message_it_shows():
    graph = conversation()
    assert Message.of(graph[2]) == Message.of(ASKS)
    assert graph[2] in graph
    assert graph.index(graph[3]) == 3


def test_a_view_of_a_flat_message_is_gone_with_its_last_reader():
    graph = conversation()
    gc.disable()
    try:
        view = graph[3]
        view["content"] = "x"
        assert list(graph._views) == [3]
        del view
        assert list(graph._views) == []  # by counting references alone: it does not wait for the collector
    finally:
        gc.enable()


def test_a_view_held_while_its_graph_is_dropped_still_reads_and_writes():
    view = conversation()[2]
    gc.collect()
    view["tool_calls"][0]["id"] = "c9"
    assert view["tool_calls"][0]["id"] == "c9"
