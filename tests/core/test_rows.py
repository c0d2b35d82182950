"""Training rows: every sampled message once, in exactly the context it was sampled from, in as few rows as can be."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stemma import Call, MessageGraph
from stemma.core.ids import ROOT, chain
from stemma.core.message import Message

READ = [{"type": "function", "function": {"name": "read"}}]
WRITE = [{"type": "function", "function": {"name": "write"}}]


def system(text="S"):
    return {"role": "system", "content": text}


def user(text="U"):
    return {"role": "user", "content": text}


def assistant(text="A"):
    return {"role": "assistant", "content": text}


def tool(text="T", tool_call_id="c1"):
    return {"role": "tool", "tool_call_id": tool_call_id, "content": text}


def texts(messages):
    return " ".join(message["content"] for message in messages)


def shape(graph):
    """The rows, each as its texts and those of them that are trained."""
    return [(texts(row.messages), " ".join(row.messages[i]["content"] for i in row.trained)) for row in graph.rows()]


def record(graph, text, tools=None, **fields):
    graph.record(assistant(text), Call(model="m", tools=tools, **fields))


# ── the examples of the docstring ────────────────────────────────────────────────────────────────────────────────


def test_two_calls_on_one_line_are_one_row():
    graph = MessageGraph([system(), user()])
    record(graph, "A1")
    graph.append(user())
    record(graph, "A2")
    assert shape(graph) == [("S U A1 U A2", "A1 A2")]


def test_an_edit_between_two_calls_makes_two_rows():
    graph = MessageGraph([system(), user()])
    record(graph, "A1")
    graph[1]["content"] = "U'"
    graph.append(user())
    record(graph, "A2")
    assert shape(graph) == [("S U A1", "A1"), ("S U' A1 U A2", "A2")]


def test_two_replies_after_one_share_its_training_between_them():
    graph = MessageGraph([system(), user()])
    record(graph, "A1")
    graph.append(user())
    record(graph, "A2")
    graph.pop()
    record(graph, "A3")
    assert shape(graph) == [("S U A1 U A2", "A1 A2"), ("S U A1 U A3", "A3")]


def test_twins_are_two_events_and_each_is_trained_in_a_row_of_its_own():
    graph = MessageGraph([user()])
    for _ in range(3):
        record(graph, "same")
        graph.pop()
    assert shape(graph) == [("U same", "same")] * 3


# ── more cases ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_graph_without_calls_has_no_rows():
    assert MessageGraph().rows() == []
    assert MessageGraph([system(), user(), assistant(), user()]).rows() == []


def test_a_row_ends_with_its_last_trained_message():
    graph = MessageGraph([user()])
    record(graph, "A1")
    graph.extend([user("after"), assistant("by hand"), user("the end")])
    assert shape(graph) == [("U A1", "A1")]


def test_other_tools_make_another_row():
    graph = MessageGraph([user()])
    record(graph, "A1", READ)
    graph.append(user())
    record(graph, "A2", WRITE)
    graph.append(user())
    record(graph, "A3", READ)
    assert shape(graph) == [("U A1 U A2 U A3", "A1 A3"), ("U A1 U A2", "A2")]
    assert [row.tools for row in graph.rows()] == [READ, WRITE]


def test_no_tools_and_tools_not_known_and_tools_in_another_order_are_other_tools():
    graph = MessageGraph([user()])
    for number, tools in enumerate((None, [], READ + WRITE, WRITE + READ)):
        record(graph, f"A{number}", tools)
    assert [row.tools for row in graph.rows()] == [None, [], READ + WRITE, WRITE + READ]


def test_a_reply_trained_once_stays_context_wherever_else_it_stands():
    graph = MessageGraph([user()])
    record(graph, "A1")
    graph[0]["content"] = "V"
    graph[0]["content"] = "W"
    graph[0]["content"] = "U"
    graph.append(user())
    record(graph, "A2")
    assert shape(graph) == [("U A1 U A2", "A1 A2")]  # the way back to where A1 was sampled is no break


def test_twins_in_the_middle_of_a_line_are_trained_below_as_far_as_there_are_lines():
    graph = MessageGraph([user()])
    record(graph, "same")
    graph.pop()
    record(graph, "same")
    graph.append(user())
    record(graph, "B")
    graph.pop()
    record(graph, "C")
    assert sorted(shape(graph)) == [("U same U B", "same B"), ("U same U C", "same C")]


def test_twins_alike_in_everything_are_told_apart_by_their_order_and_forks_are_not_counted_again():
    graph = MessageGraph([user()])
    record(graph, "same")
    graph.pop()
    record(graph, "same")
    parent = MessageGraph([user(), assistant()])
    parent.append(tool(), contains=[graph, graph.fork(), graph.fork()])
    assert shape(parent) == [("U same", "same")] * 2


def test_calls_of_two_conversations_are_never_taken_for_one_however_alike():
    children = []
    for _ in range(2):
        child = MessageGraph([user()])
        record(child, "same")
        children.append(child)
    parent = MessageGraph([user(), assistant()])
    parent.append(tool(), contains=children)
    assert shape(parent) == [("U same", "same")] * 2


def test_a_row_knows_its_calls_its_tools_and_its_tip():
    graph = MessageGraph([user()])
    graph.record(assistant("A1"), Call(model="m", tools=READ, params={"temperature": 0.5}))
    tip = graph.tip
    graph.append(user("after"))
    (row,) = graph.rows()
    assert (row.tools, row.trained, row.tip) == (READ, (1,), tip)
    assert [call.params for call in row.calls] == [{"temperature": 0.5}]


def test_rows_reach_the_subagents_of_versions_too():
    child = MessageGraph([user("sub")])
    record(child, "done")
    graph = MessageGraph([user()])
    record(graph, "A1")
    graph.append(tool(), contains=child)
    record(graph, "A2")
    graph[1:] = [assistant("summary")]
    assert shape(graph) == [("U A1 T A2", "A1 A2"), ("sub done", "done")]


def test_the_same_graph_gives_the_same_rows_each_time():
    graph = MessageGraph([user()])
    for text in ("A1", "A2", "A1"):
        record(graph, text)
        graph.pop()
    assert graph.rows() == graph.rows() == graph.fork().rows()


@pytest.mark.parametrize("calls", [2_000])
def test_a_long_conversation_is_one_row_without_a_deep_stack(with_short_stack, calls):
    def promise():
        graph = MessageGraph()
        for number in range(calls):
            graph.append(user(str(number)))
            record(graph, str(number))
        assert [len(row.trained) for row in graph.rows()] == [calls]

    with_short_stack(promise)


# ── against brute force ──────────────────────────────────────────────────────────────────────────────────────────

MOST_CALLS = 7


class Conversation:
    """Graphs that grow by chance, and a note of what each call was recorded with, made at that moment."""

    def __init__(self, *, named):
        self.named = named
        self.graphs = [MessageGraph([user("U0")])]
        self.notes = []  # (context and reply, tools), one for each call

    def record(self, graph, text, tools):
        if len(self.notes) == MOST_CALLS:
            return
        reply = assistant(text)
        self.notes.append((json.dumps([*graph.messages(), reply]), json.dumps(tools)))
        graph.record(reply, Call(model="m", tools=tools, id=str(len(self.notes)) if self.named else None))

    def spawn(self, parent, child):
        if not self.named:
            return
        if not any(message["role"] == "tool" for message in parent.messages()):
            parent.append(tool())
        place = next(i for i, message in enumerate(parent.messages()) if message["role"] == "tool")
        if all(graph is not parent for graph in child.reach()):
            parent.attach(place, child)
            self.graphs.append(child)

    def step(self, draw):
        graph = draw(st.sampled_from(self.graphs))
        place = draw(st.integers(0, max(0, len(graph) - 1)))
        text = draw(st.sampled_from("ab"))
        acts = {
            "record": lambda: self.record(graph, text, draw(st.sampled_from([None, READ]))),
            "record again": lambda: self.record(graph, "a", None),
            "append": lambda: graph.append(user(text)),
            "edit": lambda: len(graph) and graph[place].update(content=text),
            "pop": lambda: len(graph) and graph.pop(),
            "pop one": lambda: len(graph) and graph.pop(place),
            "insert": lambda: graph.insert(place, user(text)),
            "cut": lambda: graph.__delitem__(slice(place, None)),
            "block": lambda: self.block(graph, place, text, draw(st.booleans())),
            "fork": lambda: self.spawn(self.graphs[0], graph.fork()),
            "spawn": lambda: self.spawn(graph, MessageGraph([user(text)])),
        }
        acts[draw(st.sampled_from(["record", "append", *acts]))]()

    def block(self, graph, place, text, with_a_call):
        with graph.edit(reason="repair"):
            taken = graph.pop() if len(graph) > 1 else None
            if with_a_call:
                self.record(graph, text, None)
            if place < len(graph):
                graph[place]["content"] = text
            if taken is not None and not with_a_call:
                graph.append(taken)


@st.composite
def conversations(draw):
    conversation = Conversation(named=draw(st.booleans()))
    for _ in range(draw(st.integers(1, 24))):
        conversation.step(draw)
    return conversation


def fewest_chains(notes):
    """How few chains can hold every call once; tried in every way there is.

    One call may follow another in a row if all the other saw and made is the beginning of what it saw, and both were
    offered the same tools.
    """
    seen = [(json.loads(line), tools) for line, tools in notes]

    def follows(later, earlier):
        (line, tools), (start, other_tools) = seen[later], seen[earlier]
        return tools == other_tools and len(start) < len(line) and line[: len(start)] == start

    def fits(number, row):
        return all(follows(number, other) or follows(other, number) for other in row)

    def fewest(number, rows):
        if number == len(seen):
            return len(rows)
        ways = [fewest(number + 1, [*rows, [number]])]
        for i, row in enumerate(rows):
            if fits(number, row):
                ways.append(fewest(number + 1, [*rows[:i], [*row, number], *rows[i + 1 :]]))
        return min(ways)

    return fewest(0, [])


@settings(max_examples=400)
@given(conversations())
def test_every_call_is_trained_exactly_once_in_its_own_context_and_in_as_few_rows_as_can_be(conversation):
    rows = conversation.graphs[0].rows()
    trained = Counter(
        (json.dumps(row.messages[: place + 1]), json.dumps(call.tools))
        for row in rows
        for place, call in zip(row.trained, row.calls, strict=True)
    )
    assert trained == Counter(conversation.notes)
    assert len(rows) == fewest_chains(conversation.notes)
    for row in rows:
        assert list(row.trained) == sorted(set(row.trained))
        assert row.trained[-1] == len(row.messages) - 1
        assert all(call.tools == row.tools for call in row.calls)
        assert all(row.messages[place]["role"] == "assistant" for place in row.trained)
        assert row.tip == chain(ROOT, (Message.of(m).id for m in row.messages))[-1].hex()


@given(conversations())
def test_every_named_call_stands_where_it_was_recorded(conversation):
    for graph in conversation.graphs[0].reach():
        for one in graph.calls():
            line = graph.messages() if one.version is None else graph.versions[one.version].messages()
            seen = (json.dumps(line[: one.index + 1]), json.dumps(one.call.tools))
            assert seen in conversation.notes
            if conversation.named:
                assert conversation.notes[int(one.call.id) - 1] == seen
            ids = chain(ROOT, (Message.of(m).id for m in line[: one.index + 1]))
            assert one.made == ids[-1].hex()
            assert one.saw == (ids[-2].hex() if one.index else None)


@given(conversations())
def test_reading_rows_changes_nothing(conversation):
    graph = conversation.graphs[0]
    before = graph.lines()
    rows = graph.rows()
    for row in rows:
        row.messages.clear()
    assert graph.lines() == before
    assert len(graph.rows()) == len(rows)


def test_reading_rows_inside_an_edit_block_leaves_the_block_one_edit():
    graph = MessageGraph([{"role": "user", "content": "q"}])
    graph.record({"role": "assistant", "content": "a"}, Call(model="m"))
    with graph.edit(reason="repair"):
        graph[0]["content"] = "q1"
        assert len(graph.rows()) == len(graph.calls()) == 1
        assert len(graph.versions) == 0
        graph[0]["content"] = "q2"
        assert [row.messages[0]["content"] for row in graph.rows()] == ["q"]
    assert [version.reason for version in graph.versions] == ["repair"]
    assert [line[0]["content"] for line in graph.lines()] == ["q", "q2"]


@pytest.mark.parametrize("field", ["trainable", "delivered"])
def test_a_call_that_says_it_must_not_be_trained_is_in_no_row(field):
    graph = MessageGraph([{"role": "user", "content": "q"}])
    graph.record({"role": "assistant", "content": "a"}, Call(model="m", extra={field: False}))
    assert graph.rows() == []
    graph.append({"role": "user", "content": "and?"})
    graph.record({"role": "assistant", "content": "b"}, Call(model="m", extra={field: True}))
    (row,) = graph.rows()
    assert row.trained == (3,)


def test_what_last_call_gives_is_a_copy():
    graph = MessageGraph([{"role": "user", "content": "q"}])
    graph.record({"role": "assistant", "content": "a"}, Call(model="m", extra={"x": 1}))
    before = graph.calls()
    last = graph.last_call()
    assert last is not None
    last.call.extra["trainable"] = False
    assert graph.calls() == before
    assert len(graph.rows()) == 1


@pytest.mark.parametrize("said", [False, 0, ""])
def test_whatever_is_false_makes_a_call_untrainable(said):
    graph = MessageGraph([{"role": "user", "content": "q"}])
    graph.record({"role": "assistant", "content": "a"}, Call(model="m", extra={"trainable": said}))
    assert graph.rows() == []


def test_what_a_row_gives_is_a_copy_also_of_a_call_that_says_nothing():
    graph = MessageGraph([{"role": "user", "content": "U"}])
    graph.record({"role": "assistant", "content": "A"}, Call(model="m"))
    for call in (graph.last_call().call, graph.rows()[0].calls[0], graph.calls()[0].call):
        call.extra["trainable"] = False
        call.params["temperature"] = 2
    assert [row.trained for row in graph.rows()] == [(1,)]
    assert graph.last_call().call == Call(model="m")
