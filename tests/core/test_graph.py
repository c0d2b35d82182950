"""What a MessageGraph promises beyond being a list: versions by the user's rule, forks, calls, subagents, and size."""

import copy
import pickle
import sys
import tracemalloc
from collections.abc import MutableSequence
from itertools import pairwise
from operator import add

import pytest

import stemma.errors
from stemma import Call, MessageGraph
from stemma.core.message import Message
from stemma.errors import BadCall, BadLink, BadMessage, BadName, NotAList, StemmaError

CALL = Call(model="m")


def system(text="S"):
    return {"role": "system", "content": text}


def user(text="U"):
    return {"role": "user", "content": text}


def assistant(text="A", **fields):
    return {"role": "assistant", "content": text, **fields}


def tool(text="T", tool_call_id="c1"):
    return {"role": "tool", "tool_call_id": tool_call_id, "content": text}


def texts(messages):
    return [message["content"] for message in messages]


# ── the code of the user's own document ──────────────────────────────────────────────────────────────────────────


def test_the_code_of_the_specification_runs_unchanged():
    messages = MessageGraph()
    messages.append({'role': 'system', 'content': 'Hello, I am a system message'})  # fmt: skip
    messages[0] = {'role': 'user', 'content': 'Hello, I am a user message'}  # fmt: skip

    assert len(messages) == 1
    assert messages[0]["role"] == "user"
    assert [msg["content"] for msg in messages] == ["Hello, I am a user message"]
    other = MessageGraph()
    other.append({"role": "user", "content": "Hello, I am a user message"})
    assert messages == other
    assert messages.previous is None  # no assistant message stands after the edit: it leaves no trace


def test_the_idiom_of_the_specification_keeps_what_the_model_saw():
    message_history = MessageGraph([system(), user(), user("my first try"), assistant()])
    message_history[2]["content"] = "my edit"
    assert texts(message_history) == ["S", "U", "my edit", "A"]
    assert texts(message_history.previous) == ["S", "U", "my first try", "A"]


def test_equality_reads_every_field_and_is_not_fooled_by_text():
    assert MessageGraph([assistant(tool_calls=[])]) != MessageGraph([assistant()])
    assert MessageGraph([user("a\n\nassistant: b")]) != MessageGraph([user("a"), assistant("b")])


# ── the user's rule, case by case ────────────────────────────────────────────────────────────────────────────────


def test_an_edit_before_an_assistant_message_keeps_the_old_line():
    graph = MessageGraph([system(), user(), assistant()])
    graph[1] = user("U'")
    assert graph.lines() == [[system(), user(), assistant()], [system(), user("U'"), assistant()]]


def test_an_edit_of_an_assistant_message_keeps_the_old_line():
    graph = MessageGraph([user(), assistant()])
    graph[1] = assistant("A'")
    assert texts(graph.previous) == ["U", "A"]


def test_an_edit_after_the_last_assistant_message_leaves_no_trace():
    graph = MessageGraph([user(), assistant(), user("V")])
    graph[2] = user("V'")
    graph[2]["content"] = "V''"
    graph.insert(2, system())
    graph.pop()
    assert graph.versions == ()
    assert graph.lines() == [[user(), assistant(), system()]]


def test_an_edit_without_any_assistant_message_leaves_no_trace():
    graph = MessageGraph([system(), user()])
    graph[0]["content"] = "S'"
    graph.reverse()
    del graph[0]
    graph.clear()
    assert graph.versions == ()


def test_an_append_leaves_no_trace():
    graph = MessageGraph([user(), assistant()])
    graph.append(user("V"))
    graph.extend([assistant("B"), user("W")])
    graph += [assistant("C")]
    graph[len(graph) :] = [user("X")]
    graph.insert(len(graph), user("Y"))
    graph.insert(999, user("Z"))
    assert graph.versions == ()


def test_an_edit_that_changes_nothing_is_no_edit():
    graph = MessageGraph([user(), assistant()])
    graph[0] = user()
    graph[0] = {"content": "U", "role": "user"}
    graph[:] = [user(), assistant()]
    graph[::2] = [user()]
    graph[0:0] = []
    del graph[5:]
    graph.extend([])
    assert graph.versions == ()


@pytest.mark.parametrize(
    "fields",
    [{"reasoning": "why"}, {"tool_calls": []}, {"name": "n"}, {"x": None}, {"content": ""}, {"role": "user"}],
)
def test_any_field_counts_as_a_change_and_not_only_the_content(fields):
    graph = MessageGraph([user(), assistant()])
    graph[1] = {**assistant(), **fields}
    assert texts(graph.previous) == ["U", "A"]
    assert graph[1] == {**assistant(), **fields}


def test_removing_the_last_assistant_message_keeps_the_line_that_had_it():
    graph = MessageGraph([user(), assistant()])
    assert graph.pop() == assistant()
    assert graph.lines() == [[user(), assistant()], [user()]]
    assert (graph.previous.index, graph.previous.replaced, graph.previous.replacement) == (1, [assistant()], [])


def test_an_insert_before_an_assistant_message_keeps_the_old_line():
    graph = MessageGraph([user(), assistant()])
    graph.insert(0, system())
    assert (graph.previous.index, graph.previous.replaced) == (0, [])
    assert graph.previous.replacement == [system()]


def test_a_line_that_only_grew_at_its_end_broke_no_prefix_however_it_was_done():
    graph = MessageGraph([assistant(), assistant()])
    graph.insert(0, assistant())
    assert graph.versions == ()
    assert graph == [assistant()] * 3


def test_a_version_begins_where_the_lines_really_part():
    graph = MessageGraph([user("x"), user("x"), assistant()])
    del graph[0]
    assert graph.previous.index == 1
    with graph.edit():
        graph.insert(0, user("x"))
    assert graph.previous.index == 1


def test_each_version_knows_its_index_its_reason_and_what_it_replaced():
    graph = MessageGraph([system(), user(), assistant(), user("V"), assistant("B")])
    with graph.edit(reason="compaction"):
        graph[1:4] = [user("summary")]
    graph[-1]["content"] = "B'"
    first, second = graph.versions
    assert (first.index, first.reason, len(first)) == (1, "compaction", 5)
    assert first.replaced == [user(), assistant(), user("V")]
    assert first.replacement == [user("summary")]
    assert (second.index, second.reason) == (2, "edit")
    assert (second.replaced, second.replacement) == ([assistant("B")], [assistant("B'")])
    assert graph.previous == second
    assert repr(first) == "<Version of 5 messages, left at 1 because of compaction>"


def test_a_version_reads_like_a_list_and_cannot_be_written_to():
    graph = MessageGraph([system(), user(), assistant()])
    graph[1]["content"] = "U'"
    old = graph.versions[0]
    assert old == [system(), user(), assistant()]
    assert old != [system(), user("U'"), assistant()]
    assert (old[1], old[-1], old[1:]) == (user(), assistant(), [user(), assistant()])
    assert list(old) == old.messages()
    old[1]["content"] = "a copy"
    old.messages()[1]["content"] = "a copy"
    assert old[1] == user()
    with pytest.raises(TypeError):
        old[1] = user()


def test_a_version_never_changes_again():
    graph = MessageGraph([system(), user(), assistant()])
    graph[1]["content"] = "U'"
    old = graph.versions[0]
    tip, line = old.tip, old.messages()
    graph.extend([user("V"), assistant("B")])
    graph[0]["content"] = "S'"
    graph.reverse()
    graph.clear()
    graph.append(user("new"))
    assert (old.tip, old.messages()) == (tip, line)
    assert (graph.versions[0].tip, graph.versions[0].messages()) == (tip, line)


def test_the_tip_of_a_version_is_the_tip_the_graph_had():
    graph = MessageGraph([system(), user(), assistant()])
    tip = graph.tip
    graph[1]["content"] = "U'"
    assert graph.previous.tip == tip
    assert graph.tip not in (tip, None)
    graph[1]["content"] = "U"
    assert graph.tip == tip
    assert MessageGraph().tip is None


def test_equal_contexts_have_equal_tips_whatever_way_they_were_reached():
    graph = MessageGraph([user(), assistant()])
    graph.insert(0, system())
    graph[1]["content"] = "V"
    assert graph.tip == MessageGraph([system(), user("V"), assistant()]).tip


# ── a block of edits ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_edits_of_a_block_are_one_version():
    graph = MessageGraph([system(), user(), assistant(), user("V"), assistant("B")])
    with graph.edit(reason="compaction"):
        graph[0]["content"] = "S'"
        graph[1:4] = [user("summary")]
        graph[-1]["content"] = "B'"
        assert graph.versions == ()
    assert [version.messages() for version in graph.versions] == [
        [system(), user(), assistant(), user("V"), assistant("B")]
    ]
    assert (graph.previous.reason, graph.previous.index) == ("compaction", 0)


def test_a_block_that_puts_everything_back_is_no_edit():
    graph = MessageGraph([system(), user()])
    graph.record(assistant(), CALL)
    tip = graph.tip
    with graph.edit():
        taken = graph.pop()
        graph[0]["content"] = "S'"
        graph[0]["content"] = "S"
        graph.append(taken)
    assert graph.versions == ()
    assert graph.tip == tip
    assert [(one.version, one.index) for one in graph.calls()] == [(None, 2)]


def test_a_block_that_only_appends_is_no_edit():
    graph = MessageGraph([user(), assistant()])
    with graph.edit():
        graph.append(user("V"))
        graph.append(assistant("not yet right"))
        graph[-1]["content"] = "B"
    assert graph.versions == ()


def test_an_inner_block_joins_the_outer_one():
    graph = MessageGraph([user(), assistant()])
    with graph.edit(reason="outer"):
        graph[0]["content"] = "1"
        with graph.edit(reason="inner"):
            graph[0]["content"] = "2"
        graph[0]["content"] = "3"
    assert [(version.reason, texts(version)) for version in graph.versions] == [("outer", ["U", "A"])]


def test_an_exception_inside_a_block_still_keeps_what_was_there():
    graph = MessageGraph([user(), assistant()])

    def edit_and_fail():
        with graph.edit(reason="repair"):
            graph[0]["content"] = "U'"
            raise OSError("in the middle")

    with pytest.raises(OSError, match="in the middle"):
        edit_and_fail()
    assert texts(graph) == ["U'", "A"]
    assert [(version.reason, texts(version)) for version in graph.versions] == [("repair", ["U", "A"])]
    graph[0]["content"] = "U''"
    assert graph.previous.reason == "edit"


def test_a_call_inside_a_block_closes_the_edits_before_it():
    graph = MessageGraph([user(), assistant()])
    with graph.edit(reason="resample"):
        graph[0]["content"] = "U'"
        graph.pop()
        graph.record(assistant("B"), CALL)
        assert [texts(version) for version in graph.versions] == [["U", "A"]]
        graph[0]["content"] = "U''"
    assert [(version.reason, texts(version)) for version in graph.versions] == [
        ("resample", ["U", "A"]),
        ("resample", ["U'", "B"]),
    ]


def test_a_reply_recorded_and_edited_in_one_block_is_trained_as_it_was_sampled():
    graph = MessageGraph([user()])
    with graph.edit():
        graph.record(assistant("sampled"), CALL)
        graph[1]["content"] = "rewritten by hand"
    assert [texts(row.messages) for row in graph.rows()] == [["U", "sampled"]]
    assert [texts(version) for version in graph.versions] == [["U", "sampled"]]
    assert texts(graph) == ["U", "rewritten by hand"]


def test_a_fork_inside_a_block_sees_the_edits_before_it():
    graph = MessageGraph([user(), assistant()])
    with graph.edit(reason="repair"):
        graph[0]["content"] = "U'"
        fork = graph.fork()
    assert texts(fork) == ["U'", "A"]
    assert [texts(version) for version in fork.versions] == [["U", "A"]]
    fork[0]["content"] = "outside the block"
    assert [version.reason for version in fork.versions] == ["repair", "edit"]


@pytest.mark.parametrize("reason", ["", " ", "a\nb", "\ud800", "\u202e", None, 5, "x" * 1000])
def test_a_reason_is_short_printable_text(reason):
    graph = MessageGraph([user(), assistant()])
    with pytest.raises(BadName), graph.edit(reason=reason):
        graph[0]["content"] = "never reached"
    assert texts(graph) == ["U", "A"]


# ── what a list can do and a context window cannot ───────────────────────────────────────────────────────────────


def test_sorting_and_repeating_are_refused():
    graph = MessageGraph([user(), assistant()])
    with pytest.raises(NotAList, match="not sorted"):
        graph.sort(key=str)
    with pytest.raises(NotAList, match="not repeated"):
        graph *= 2
    assert issubclass(NotAList, TypeError)
    assert graph == [user(), assistant()]


def test_it_is_a_mutable_sequence_and_cannot_be_a_key():
    graph = MessageGraph([user()])
    assert isinstance(graph, MutableSequence)
    with pytest.raises(TypeError, match="unhashable"):
        hash(graph)


def test_indices_that_are_none_are_refused_as_by_a_list():
    graph = MessageGraph([user()])
    for index in ("0", None, 1.0):
        with pytest.raises(TypeError):
            graph[index]
        with pytest.raises(TypeError):
            graph.insert(index, user())
    for index in (1, -2):
        with pytest.raises(IndexError):
            graph[index]
        with pytest.raises(IndexError):
            graph.pop(index)
    assert graph == [user()]


def test_all_or_nothing_is_appended():
    graph = MessageGraph([user()])
    for bad in ([assistant(), {"content": "no role"}], [assistant(), float("nan")]):
        with pytest.raises(BadMessage):
            graph.extend(bad)
        with pytest.raises(BadMessage):
            graph[0:1] = bad
        with pytest.raises(BadMessage):
            graph += bad
    assert graph == [user()]


def test_a_graph_can_be_added_to_itself_and_to_lists():
    graph = MessageGraph([user(), assistant()])
    graph.extend(graph)
    graph += graph
    assert texts(graph) == ["U", "A"] * 4
    assert texts(add(graph[:2], [user("V")])) == ["U", "A", "V"]
    assert texts(add(MessageGraph([user()]), [assistant()])) == ["U", "A"]
    assert texts(add([system()], MessageGraph([user()]))) == ["S", "U"]


def test_what_is_appended_is_copied():
    mine = assistant(tool_calls=[{"id": "c1"}])
    graph = MessageGraph([mine])
    mine["tool_calls"][0]["id"] = "changed"
    assert graph.messages() == [assistant(tool_calls=[{"id": "c1"}])]


def test_it_says_what_it_is():
    graph = MessageGraph([user(), assistant()])
    assert repr(graph) == "<MessageGraph of 2 messages, 0 versions>"
    graph.clear()
    assert repr(graph) == "<MessageGraph of 0 messages, 1 version>"


# ── forks ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fork", [MessageGraph.fork, MessageGraph.copy, copy.copy, copy.deepcopy])
def test_a_fork_has_the_same_past_and_a_future_of_its_own(fork):
    graph = MessageGraph([user()])
    graph.record(assistant(), CALL)
    graph[0]["content"] = "U'"
    other = fork(graph)
    assert (other, other.tip, len(other.versions), len(other.calls())) == (graph, graph.tip, 1, 1)

    graph.append(user("only here"))
    graph[0]["content"] = "U here"
    other[0]["content"] = "U there"
    other.record(assistant("only there"), CALL)
    assert texts(graph) == ["U here", "A", "only here"]
    assert texts(other) == ["U there", "A", "only there"]
    assert [texts(version) for version in graph.versions] == [["U", "A"], ["U'", "A", "only here"]]
    assert [texts(version) for version in other.versions] == [["U", "A"], ["U'", "A"]]
    assert (len(graph.calls()), len(other.calls())) == (1, 2)


def test_forks_share_every_message():
    graph = MessageGraph([user("x" * 1000) for _ in range(100)])
    assert all(mine is theirs for mine, theirs in zip(graph._line, graph.fork()._line, strict=True))


def test_a_fork_of_a_fork_knows_all_versions():
    graph = MessageGraph([user("0"), assistant()])
    for text in "123":
        graph = graph.fork()
        graph[0]["content"] = text
    assert [texts(line)[0] for line in graph.lines()] == ["0", "1", "2", "3"]


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_recorded_reply_is_tied_to_exactly_what_it_was_sampled_from():
    graph = MessageGraph([user()])
    saw = graph.tip
    graph.record(assistant(), Call(model="m", params={"temperature": 1.0}))
    made = graph.tip
    graph[0]["content"] = "U'"
    graph.append(user("V"))
    (one,) = graph.calls()
    assert (one.saw, one.made, one.index, one.version) == (saw, made, 1, 0)
    assert one.call.params == {"temperature": 1.0}


def test_the_first_message_of_all_can_be_sampled():
    graph = MessageGraph()
    graph.record(assistant(), CALL)
    assert (graph.calls()[0].saw, graph.calls()[0].index) == (None, 0)


@pytest.mark.parametrize("message", [user(), system(), tool()])
def test_only_an_assistant_message_can_be_sampled(message):
    graph = MessageGraph([user()])
    with pytest.raises(BadMessage, match="append it"):
        graph.record(message, CALL)
    assert graph == [user()]
    assert graph.calls() == []


@pytest.mark.parametrize("call", [None, "m", {"model": "m"}, Call])
def test_a_reply_is_recorded_with_a_call_or_not_at_all(call):
    graph = MessageGraph([user()])
    with pytest.raises(BadCall, match=r"needs a stemma\.Call"):
        graph.record(assistant(), call)
    assert graph == [user()]


def test_a_hand_written_assistant_message_is_context_and_makes_no_row():
    graph = MessageGraph([user(), assistant("by hand")])
    assert graph.calls() == []
    assert graph.rows() == []
    graph.extend([user("V"), assistant("by hand too")])
    graph.record(assistant("sampled"), CALL)
    (row,) = graph.rows()
    assert row.trained == (4,)


def test_nobody_can_change_a_call_that_was_recorded():
    graph = MessageGraph([user()])
    call = Call(model="m", params={"deep": [1]}, tools=[{"name": "read"}])
    graph.record(assistant(), call)
    call.params["deep"].append(2)
    call.tools.clear()
    graph.calls()[0].call.params["deep"].append(3)
    graph.rows()[0].calls[0].params.clear()
    graph.rows()[0].tools.clear()
    assert graph.calls()[0].call == Call(model="m", params={"deep": [1]}, tools=[{"name": "read"}])
    assert graph.rows()[0].tools == [{"name": "read"}]


# ── subagents ────────────────────────────────────────────────────────────────────────────────────────────────────


def subagent(text="sub"):
    graph = MessageGraph([user(text)])
    graph.record(assistant(text + " done"), Call(model="m", id=text))
    return graph


def test_a_tool_result_carries_the_conversation_it_answers_for():
    child = subagent()
    graph = MessageGraph([user(), assistant()])
    graph.append(tool(), contains=child)
    assert graph.nested(2) == (child,)
    assert graph.nested(-1)[0] is child
    assert graph.nested(0) == ()
    assert graph.reach() == [graph, child]
    assert graph.lines() == [[user(), assistant(), tool()], [user("sub"), assistant("sub done")]]
    assert [texts(row.messages) for row in graph.rows()] == [["sub", "sub done"]]


def test_several_conversations_can_hang_on_one_result_and_be_linked_later():
    one, two, three = subagent("1"), subagent("2"), subagent("3")
    graph = MessageGraph([user(), assistant()])
    graph.append(tool(), contains=[one, two])
    graph.attach(2, three)
    assert all(found is expected for found, expected in zip(graph.nested(2), (one, two, three), strict=True))


def test_the_same_conversation_twice_is_one_conversation():
    child = subagent()
    graph = MessageGraph()
    graph.append(tool("1", "c1"), contains=[child, child])
    graph.append(tool("2", "c2"), contains=child)
    graph.attach(0, child)
    assert len(graph.reach()) == 2
    assert len(graph.nested(0)) == len(graph.nested(1)) == 1
    assert len(graph.lines()) == 2
    assert len(graph.rows()) == 1
    assert len(graph.links()) == 2


def test_equal_conversations_that_are_not_the_same_one_are_two():
    graph = MessageGraph()
    graph.append(tool(), contains=[subagent(), subagent()])
    assert len(graph.nested(0)) == 2
    assert len(graph.reach()) == 3


@pytest.mark.parametrize("message", [user(), assistant(), {"role": "tool", "content": ""}, tool(tool_call_id=None)])
def test_a_conversation_hangs_on_a_tool_result_with_its_tool_call_id_only(message):
    graph = MessageGraph()
    with pytest.raises(BadLink, match="tool_call_id"):
        graph.append(message, contains=subagent())
    assert len(graph) == 0
    graph.append(message)
    with pytest.raises(BadLink, match="tool_call_id"):
        graph.attach(0, subagent())
    assert graph.reach() == [graph]


@pytest.mark.parametrize("child", [[user()], "text", {"role": "user"}])
def test_only_graphs_can_be_contained(child):
    graph = MessageGraph()
    with pytest.raises(BadLink, match="MessageGraph"):
        graph.append(tool(), contains=[child])
    assert len(graph) == 0


def test_cycles_are_refused_at_any_distance():
    graphs = [MessageGraph([tool(str(i))]) for i in range(4)]
    with pytest.raises(BadLink, match="cannot contain itself"):
        graphs[0].attach(0, graphs[0])
    for parent, child in pairwise(graphs):
        parent.attach(0, child)
    for ancestor in graphs:
        with pytest.raises(BadLink, match="cannot contain itself"):
            graphs[-1].attach(0, subagent(), ancestor)
        with pytest.raises(BadLink, match="cannot contain itself"):
            graphs[-1].append(tool("new"), contains=ancestor)
    assert len(graphs[-1]) == 1
    assert graphs[-1].links() == []


def test_a_conversation_may_be_reached_by_two_ways():
    shared, left, right, top = subagent(), MessageGraph(), MessageGraph(), MessageGraph()
    left.append(tool("left"), contains=shared)
    right.append(tool("right"), contains=shared)
    top.append(tool("top"), contains=[left, right])
    assert len(top.reach()) == 4
    assert [texts(row.messages) for row in top.rows()] == [["sub", "sub done"]]


def test_a_rewritten_tool_result_still_answers_for_its_subagents():
    child = subagent()
    graph = MessageGraph([user(), assistant()])
    graph.append(tool(), contains=child)
    graph.append(assistant("B"))
    graph[2]["content"] = "shortened"
    assert graph.nested(2) == (child,)
    graph[2] = tool("replaced whole")
    assert graph.nested(2) == (child,)
    graph[2] = tool("another call's", tool_call_id="c2")
    assert graph.nested(2) == ()
    assert graph.reach() == [graph, child]
    assert child.messages() in graph.lines()


def test_rewriting_a_tool_result_again_and_again_links_nothing_twice():
    one, two = subagent("1"), subagent("2")
    graph = MessageGraph([user(), assistant()])
    graph.append(tool("here"), contains=one)
    graph.append(tool("there"), contains=two)
    for _ in range(50):
        graph[2]["content"] = "there"
        graph[2]["content"] = "here"
    assert all(found is expected for found, expected in zip(graph.nested(3), (two, one), strict=True))
    assert len(graph.links()) == 4


def test_a_result_moved_in_its_line_keeps_its_subagents():
    child = subagent()
    graph = MessageGraph([user(), assistant()])
    graph.append(tool(), contains=child)
    graph.insert(0, system())
    assert graph.nested(3) == (child,)


def test_forks_can_be_given_subagents_of_their_own():
    graph = MessageGraph([tool()])
    fork = graph.fork()
    fork.attach(0, subagent())
    assert graph.nested(0) == ()
    assert len(fork.nested(0)) == 1


def test_a_thousand_conversations_within_each_other_need_no_deep_stack(with_short_stack):
    def promise():
        graph = subagent("0")
        for depth in range(1, 1000):
            outer = subagent(str(depth))
            outer.append(tool("result", f"c{depth}"), contains=graph)
            graph = outer
        assert len(graph.reach()) == 1000
        assert len(graph.lines()) == 1000
        assert len(graph.rows()) == 1000
        assert graph.fork().lines()[-1] == [user("0"), assistant("0 done")]
        with pytest.raises(BadLink):
            graph.reach()[-1].append(tool(), contains=graph)

    with_short_stack(promise)


# ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_of_a_hundred_thousand_messages_needs_no_deep_stack(with_short_stack):
    def promise():
        graph = MessageGraph(user("U") if i % 2 else assistant("A") for i in range(100_000))
        graph.record(assistant("sampled"), CALL)
        tip = graph.tip
        graph[0]["content"] = "edited"
        assert graph.tip != tip
        assert (len(graph), graph.previous.tip, graph.previous.index) == (100_001, tip, 0)
        fork = graph.fork()
        assert fork.tip == graph.tip
        fork.append(user("only there"))
        assert len(graph) == 100_001
        assert graph.rows()[0].trained == (100_000,)
        assert len(graph.messages()) == 100_001

    with_short_stack(promise)


def test_ten_thousand_versions_need_no_deep_stack(with_short_stack):
    def promise():
        graph = MessageGraph([system(), user(), assistant()])
        for number in range(10_000):
            graph[0]["content"] = str(number)
        assert len(graph.versions) == 10_000
        assert texts(graph.versions[0]) == ["S", "U", "A"]
        assert len(graph.lines()) == 10_001
        assert graph.lines()[5_000][0] == system("4999")
        assert texts(graph.fork().previous) == ["9998", "U", "A"]

    with_short_stack(promise)


def test_ten_thousand_edits_copy_nothing_but_what_they_changed():
    graph = MessageGraph(user("x" * 100) if i % 2 else assistant("y" * 100) for i in range(1000))

    def edit(times, start):
        for number in range(start, start + times):
            graph[number * 7 % 1000]["content"] = f"edit {number}"

    tracemalloc.start()
    try:
        edit(5_000, 0)
        half = tracemalloc.get_traced_memory()[0]
        edit(5_000, 5_000)
        whole = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(graph.versions) > 9_000
    assert whole < 40 * 1024 * 1024
    assert whole < 2.5 * half


def test_edits_through_views_that_are_all_held_at_once_stay_linear():
    """10,000 held views: a walk over all of them at each edit would take minutes."""
    graph = MessageGraph(assistant() for _ in range(10_000))
    for view in graph[:]:
        view["content"] = "redacted"
    views = list(graph)
    for view in views:
        view["content"] = "again"
    assert {m["content"] for m in graph.messages()} == {"again"}


def test_a_head_rewritten_before_every_call_costs_a_message_each_time():
    graph = MessageGraph([system(), *(user("x" * 50) for _ in range(1000))])
    graph.record(assistant(), CALL)
    tracemalloc.start()
    try:
        for number in range(300):
            graph[0]["content"] = f"it is {number} o'clock"
            graph.append(user())
            graph.record(assistant(str(number)), CALL)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(graph.calls()) == 301
    assert grown < 4 * 1024 * 1024


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────

ERRORS = [kind for kind in vars(stemma.errors).values() if isinstance(kind, type) and issubclass(kind, StemmaError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_survive_pickling_and_are_drawn_in_the_tree(kind):
    problem = kind("what, where, what to do")
    copied = pickle.loads(pickle.dumps(problem))
    assert type(copied) is kind
    assert str(copied) == str(problem) == "what, where, what to do"
    assert kind.__name__ in stemma.errors.__doc__
    assert kind.__doc__


def test_errors_are_also_the_standard_types_they_resemble():
    graph = MessageGraph([user()])
    with pytest.raises(ValueError, match="role"):
        graph.append({})
    with pytest.raises(TypeError):
        graph.sort()
    view = graph[0]
    graph.clear()
    with pytest.raises(RuntimeError):
        view["content"] = "x"


def test_a_message_that_is_already_one_can_be_appended():
    graph = MessageGraph([Message.of(user())])
    graph[0] = Message.of(assistant())
    assert graph == [assistant()]


def test_the_recursion_limit_is_what_it_was():
    assert sys.getrecursionlimit() >= 1000


def test_a_graph_equals_a_version_and_a_version_a_graph_that_say_the_same():
    graph = MessageGraph([{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}])
    before = graph.fork()
    graph[0]["content"] = "V"
    assert graph.previous == before
    assert before == graph.previous
    assert graph != graph.previous


def test_a_graph_survives_pickling_with_its_whole_past():
    graph = MessageGraph([{"role": "user", "content": "U"}])
    graph.record({"role": "assistant", "content": "A"}, Call(model="m"))
    graph[0]["content"] = "V"
    held = graph[0]
    again = pickle.loads(pickle.dumps(graph))
    assert (again, again.lines(), again.calls()) == (graph, graph.lines(), graph.calls())
    again[0]["content"] = "W"
    assert held["content"] == graph[0]["content"] == "V"


def test_a_deep_copy_does_not_follow_what_subagents_say_later():
    child = MessageGraph([{"role": "user", "content": "sub"}])
    graph = MessageGraph()
    graph.append({"role": "tool", "tool_call_id": "c", "content": "R"}, contains=child)
    copied = copy.deepcopy(graph)
    child.append({"role": "user", "content": "more"})
    assert [len(g) for g in copied.reach()] == [1, 1]
    assert [len(g) for g in graph.reach()] == [1, 2]
