"""Promises of tool calls: pieces put together, an id each, arguments as received."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.models.calls import CallPieces, tidy_calls
from stemma.models.errors import BrokenReply


def piece(index=None, call_id=None, name=None, arguments=None, **fields):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    made = {"index": index, "id": call_id, "function": function, **fields}
    return {key: value for key, value in made.items() if value is not None}


def put_together(*pieces):
    calls = CallPieces()
    for one in pieces:
        calls.add([one])
    return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls.whole()]


def test_pieces_belong_together_by_index():
    assert put_together(
        piece(0, "a", "add", ""),
        piece(1, "b", "mul", ""),
        piece(0, arguments='{"x":'),
        piece(1, arguments="{"),
        piece(0, arguments=" 1}"),
        piece(1, arguments="}"),
    ) == [("a", "add", '{"x": 1}'), ("b", "mul", "{}")]


def test_gaps_between_indices_mean_nothing_and_the_order_does():
    assert put_together(piece(7, "b", "mul", "{}"), piece(2, "a", "add", "{}")) == [
        ("a", "add", "{}"),
        ("b", "mul", "{}"),
    ]


@pytest.mark.parametrize("index", [None, 0])
def test_whole_calls_without_an_index_or_with_the_same_one_are_told_apart_by_their_ids(index):
    assert put_together(piece(index, "a", "add", "{}"), piece(index, "b", "add", "{}")) == [
        ("a", "add", "{}"),
        ("b", "add", "{}"),
    ]


def test_another_name_after_arguments_have_begun_is_another_call():
    assert put_together(piece(0, None, "add", "{}"), piece(0, None, "mul", "{}")) == [
        ("", "add", "{}"),
        ("", "mul", "{}"),
    ]


def test_a_name_that_comes_again_with_each_piece_is_one_name():
    assert put_together(piece(0, "a", "add", "{"), piece(0, "a", "add", "}")) == [("a", "add", "{}")]


def test_a_new_id_with_each_piece_but_no_name_is_still_one_call():
    assert put_together(piece(0, "a", "add", "{"), piece(0, "b", None, "}")) == [("a", "add", "{}")]


def test_a_name_may_come_in_pieces():
    assert put_together(piece(0, "a", "read"), piece(0, None, "_file"), piece(0, None, None, "{}")) == [
        ("a", "read_file", "{}")
    ]


def test_fields_we_do_not_know_stay():
    calls = CallPieces()
    calls.add([piece(0, "a", "add", "{}", extra_content={"google": {"thought_signature": "xyz"}})])
    assert calls.whole()[0]["extra_content"] == {"google": {"thought_signature": "xyz"}}


@pytest.mark.parametrize("odd", ["x", [1], [{"function": "x"}], {"index": 0}])
def test_what_is_no_piece_of_a_call_is_a_broken_reply(odd):
    with pytest.raises(BrokenReply):
        CallPieces().add(odd)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=5), st.text(max_size=40)), max_size=5), st.integers(1, 7))
def test_arguments_end_as_they_were_sent_however_they_were_cut(sent, width):
    pieces = []
    for i, (name, arguments) in enumerate(sent):
        pieces.append(piece(i, f"id{i}", name))
        pieces += [piece(i, arguments=arguments[at : at + width]) for at in range(0, len(arguments), width)]
    assert put_together(*pieces) == [(f"id{i}", name, arguments) for i, (name, arguments) in enumerate(sent)]


def call(call_id=None, name="add", arguments="{}", **fields):
    made = {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}
    return made if call_id is None else {"id": call_id, **made}


def test_a_call_without_an_id_gets_one_made_of_its_place():
    calls, made = tidy_calls([call(), call("b"), call("")], position=3)
    assert [c["id"] for c in calls] == ["call00300", "b", "call00302"]
    assert made == ["call00300", "call00302"]
    assert tidy_calls([call(), call("b"), call("")], position=3) == (calls, made)


def test_a_repeated_id_is_kept_once():
    calls, made = tidy_calls([call("same"), call("same"), call("other")], position=12)
    assert [c["id"] for c in calls] == ["same", "call01201", "other"]
    assert made == ["call01201"]


def test_a_made_id_meets_no_other():
    calls, _ = tidy_calls([call(), call("call00301"), call()], position=3, taken=["call00300"])
    ids = [c["id"] for c in calls]
    assert len({*ids, "call00300"}) == 4


@pytest.mark.parametrize("arguments", ["", "{", '{"a": 1,, oops', "null", "\ud800", '{ "a" : 1 }'])
def test_argument_strings_are_never_touched(arguments):
    [[only], _] = tidy_calls([call("a", arguments=arguments)], position=0)
    assert only["function"]["arguments"] == arguments


def test_arguments_that_are_no_string_become_one():
    calls, _ = tidy_calls([call("a", arguments={"b": 1, "a": "é"}), call("b", arguments=None)], position=0)
    assert [c["function"]["arguments"] for c in calls] == ['{"b":1,"a":"é"}', ""]


def test_the_place_in_the_stream_is_not_part_of_a_call():
    [[only], _] = tidy_calls([call("a", index=4)], position=0)
    assert "index" not in only


def test_a_kind_of_call_we_do_not_know_stays_as_it_is():
    custom = {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    assert tidy_calls([custom], position=0) == ([custom], [])


@pytest.mark.parametrize("calls", ["x", {"a": 1}, [1], [{"id": "a"}], [{"id": "a", "type": "custom"}]])
def test_what_is_no_call_is_a_broken_reply(calls):
    with pytest.raises(BrokenReply):
        tidy_calls(calls, position=0)
