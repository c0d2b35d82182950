"""Promises of putting a streamed reply together: it ends as what would have come at once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from completions import call, completion, events_of
from stemma.models.assemble import Assembly
from stemma.models.errors import BrokenReply, EndpointFailed
from stemma.models.protocol import Delta


def assemble(*chunks: object, on_delta=None) -> dict:
    assembly = Assembly(on_delta)
    for chunk in chunks:
        assembly.add(chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode())
    return assembly.payload()


def delta(index=0, finish=None, **fields):
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


texts = st.text(max_size=30)
calls = st.lists(st.builds(call, st.just("add"), texts, st.uuids().map(str)), min_size=1, max_size=3)
messages = st.fixed_dictionaries(
    {"content": texts}, optional={"reasoning_content": texts, "tool_calls": calls, "refusal": texts}
)


@given(messages, st.integers(1, 9), st.integers(1, 3))
def test_a_streamed_completion_ends_as_the_whole_one(message, width, n):
    whole = completion(n=n, **message)
    events = [event.removeprefix(b"data: ").strip() for event in events_of(whole, width)[:-1]]
    assert assemble(*events) == whole


def test_pieces_are_shown_while_they_come():
    shown = []
    assemble(
        delta(role="assistant", content=""),
        delta(reasoning_content="Hm."),
        delta(content="Yes"),
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "add", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
        delta(finish="tool_calls"),
        on_delta=shown.append,
    )
    assert shown == [Delta("reasoning", "Hm."), Delta("text", "Yes"), Delta("tool", "add"), Delta("tool", "{}")]


def test_of_several_choices_only_the_first_is_shown():
    shown = []
    assemble(delta(0, content="a"), delta(1, content="b"), delta(0, "stop"), delta(1, "stop"), on_delta=shown.append)
    assert shown == [Delta("text", "a")]


def test_token_ids_and_logprobs_are_extended_and_usage_comes_last():
    def token(i):
        entry = {"token": "x", "logprob": -0.5}
        return {"index": 0, "delta": {"content": "x"}, "token_ids": [i], "logprobs": {"content": [entry]}}

    payload = assemble(
        {"prompt_token_ids": [1, 2], "choices": [{"index": 0, "delta": {"content": ""}, "token_ids": None}]},
        {"choices": [token(5)], "usage": {"completion_tokens": 1}},
        {"choices": [token(6)]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "token_ids": [7]}]},
        {"choices": [], "usage": {"completion_tokens": 3}},
    )
    [choice] = payload["choices"]
    assert (payload["prompt_token_ids"], choice["token_ids"]) == ([1, 2], [5, 6, 7])
    assert len(choice["logprobs"]["content"]) == 2
    assert payload["usage"] == {"completion_tokens": 3}


def test_parts_of_mistral_are_told_apart():
    payload = assemble(
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Is it"}]}]),
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": " 7?"}]}]),
        delta(content=[{"type": "text", "text": "Se"}]),
        delta(content="ven"),
        delta(finish="stop"),
    )
    message = payload["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Seven", "Is it 7?")


def test_reasoning_details_are_joined_by_index_and_keep_their_signature():
    def part(**fields):
        return delta(reasoning_details=[{"type": "reasoning.text", "index": 0, **fields}])

    payload = assemble(part(text="Is it"), part(text=" 7?"), part(signature="xyz"), delta(content="7", finish="stop"))
    [detail] = payload["choices"][0]["message"]["reasoning_details"]
    assert (detail["text"], detail["signature"]) == ("Is it 7?", "xyz")


def test_a_summary_at_the_end_does_not_double_the_reply():
    payload = assemble(
        delta(content="7"),
        {"choices": [{"index": 0, "message": {"content": "7"}, "finish_reason": "stop"}]},
    )
    assert payload["choices"][0]["message"]["content"] == "7"


@pytest.mark.parametrize(
    "chunk", [[], "x", 1, {"choices": [1]}, {"choices": [{"index": "0"}]}, {"choices": [{"index": 0, "delta": "x"}]}]
)
def test_what_is_no_chunk_is_a_broken_reply(chunk):
    with pytest.raises(BrokenReply):
        assemble(chunk)


def test_an_error_among_the_chunks_is_that_error():
    with pytest.raises(EndpointFailed, match="upstream"):
        assemble(delta(content="half a re"), {"error": {"message": "upstream died"}})


def test_a_stream_without_a_finish_reason_is_not_whole():
    with pytest.raises(BrokenReply, match="finish reason"):
        assemble(delta(content="half a re"))
    with pytest.raises(BrokenReply, match="finish reason"):
        assemble(delta(0, "stop", content="a"), delta(1, content="b"))
