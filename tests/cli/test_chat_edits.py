"""Edits from within a chat lose nothing that was sampled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma import Call, MessageGraph
from stemma.cli.chat_edits import (
    BadCommand,
    cut_for_retry,
    decline_open_calls,
    edit_text,
    is_unfinished,
    take_back,
)

CALLS = [{"id": i, "type": "function", "function": {"name": "add", "arguments": "{}"}} for i in ("c1", "c2")]


def talk(*said: str) -> MessageGraph:
    """User and model in turn."""
    graph = MessageGraph([{"role": "system", "content": "S"}])
    for number, text in enumerate(said):
        if number % 2:
            graph.record({"role": "assistant", "content": text}, Call(model="m"))
        else:
            graph.append({"role": "user", "content": text})
    return graph


def said(messages) -> list[str]:
    return [message["content"] for message in messages]


def test_an_edit_before_a_reply_keeps_a_version_and_one_after_it_does_not():
    graph = talk("U", "A", "V")
    assert edit_text(graph, 3, "V'") == "edited message 3; no reply stood after it, so nothing had to be kept"
    assert edit_text(graph, 1, "U'") == "edited message 1; kept as version 0 because a reply stood after it"
    assert edit_text(graph, -3, "U'") == "nothing changed"
    assert (said(graph), said(graph.versions[0])) == (["S", "U'", "A", "V'"], ["S", "U", "A", "V'"])


@pytest.mark.parametrize("index", [4, -5, 10**9])
def test_an_edit_of_no_message_is_refused(index):
    with pytest.raises(BadCommand, match="from 0 to 3"):
        edit_text(talk("U", "A", "V"), index, "x")


def test_an_edit_of_pictures_is_refused():
    graph = MessageGraph([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
    with pytest.raises(BadCommand, match="no text"):
        edit_text(graph, 0, "x")


def test_undo_takes_back_whole_turns_until_there_is_none():
    graph = talk("U", "A", "V")
    assert "took back 1 message;" in take_back(graph)
    assert (said(graph), len(graph.versions)) == (["S", "U", "A"], 0)
    assert "took back 2 messages; kept as version 0" in take_back(graph)
    assert said(graph) == ["S"]
    with pytest.raises(BadCommand, match="no user turn"):
        take_back(graph)


@pytest.mark.parametrize(
    ("edited", "left"),
    [
        (None, ["S", "U", "A", "V"]),
        (1, ["S", "U"]),  # from the edited message on
        (0, ["S", "U", "A", "V"]),  # a system message leads nowhere by itself
        (2, ["S", "U", "A", "V"]),  # nor does an answer
    ],
)
def test_retry_samples_again_from_where_it_makes_sense(edited, left):
    graph = talk("U", "A", "V", "B")
    assert "kept as version 0" in (cut_for_retry(graph, edited) or "")
    assert (said(graph), graph.versions[0].reason) == (left, "resample")
    assert is_unfinished(graph)


def test_retry_after_a_failure_keeps_nothing_because_nothing_was_sampled():
    graph = talk("U")
    assert cut_for_retry(graph) is None
    assert (said(graph), len(graph.versions)) == (["S", "U"], 0)


def test_stopped_calls_are_answered_in_order_and_only_those():
    graph = talk("U")
    graph.record({"role": "assistant", "content": None, "tool_calls": CALLS}, Call(model="m"))
    graph.append({"role": "tool", "tool_call_id": "c1", "content": "2"})
    assert is_unfinished(graph)
    decline_open_calls(graph)
    assert [message.get("tool_call_id") for message in graph[3:]] == ["c1", "c2"]
    assert "the user stopped" in graph[-1]["content"]


def test_what_is_finished_and_what_is_not():
    assert not is_unfinished(MessageGraph())
    assert not is_unfinished(talk())
    assert is_unfinished(talk("U"))
    assert not is_unfinished(talk("U", "A"))


@given(st.lists(st.tuples(st.sampled_from(["say", "edit", "undo", "retry"]), st.integers(0, 5)), max_size=12))
def test_whatever_is_done_every_reply_is_trained_once_in_the_context_it_was_sampled_in(steps):
    graph, sampled = MessageGraph(), []

    def answer(number: int) -> None:
        sampled.append([*said(graph), f"A{number}"])
        graph.record({"role": "assistant", "content": f"A{number}"}, Call(model="m"))

    for number, (step, index) in enumerate(steps):
        try:
            if step == "say":
                graph.append({"role": "user", "content": f"U{number}"})
                answer(number)
            elif step == "edit":
                edit_text(graph, index, f"E{number}")
            elif step == "undo":
                take_back(graph)
            else:
                cut_for_retry(graph)
                answer(number)
        except BadCommand:
            continue
    trained = [said(row.messages)[: place + 1] for row in graph.rows() for place in row.trained]
    assert sorted(trained) == sorted(sampled)
