"""Whatever an endpoint says ends in replies that a graph can record, or in a `ModelError`; never in anything else."""

import json

from hypothesis import given
from hypothesis import strategies as st

from completions import call, completion
from stemma import MessageGraph
from stemma.models.bodies import EventBody
from stemma.models.completion import Asked, read_completion
from stemma.models.errors import ModelError
from stemma.models.protocol import Request
from stemma.redact import Redactor

NAMES = [
    *("choices", "message", "delta", "index", "content", "role", "tool_calls", "function", "name", "arguments", "id"),
    *("finish_reason", "usage", "prompt_tokens", "completion_tokens", "logprobs", "logprob", "token", "token_ids"),
    *("prompt_token_ids", "sglext", "output_ids", "meta_info", "output_token_logprobs", "reasoning", "error", "code"),
    *("reasoning_details", "reasoning_content", "refusal", "model", "type", "text", "top_logprobs", "cost", "index"),
]
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "stop", "error", "<think>", "x"])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def nearly_right(draw):
    """A good completion with something odd put into it."""
    payload = completion("hello", n=draw(st.integers(1, 2)), tool_calls=[call()])
    place = payload
    for _ in range(draw(st.integers(0, 4))):
        inner = [
            value
            for value in (place.values() if isinstance(place, dict) else place)
            if value and isinstance(value, dict | list)
        ]
        if not inner:
            break
        place = draw(st.sampled_from(inner))
    if isinstance(place, dict):
        place[draw(st.sampled_from([*place, *NAMES]))] = draw(values)
    else:
        place[draw(st.integers(0, len(place) - 1))] = draw(values)
    return payload


def read(payload: object) -> None:
    request = Request(messages=[{"role": "user", "content": "hi"}])
    asked = Asked(model="m", request=request, params={}, started=0.0, seconds=1.0)
    try:
        replies = read_completion(payload, asked, Redactor(["sk-12345678"]))
    except ModelError:
        return
    assert replies
    for reply in replies:
        graph = MessageGraph(request.messages)
        graph.record(reply.message, reply.call)
        assert graph.tip


@given(nearly_right() | values)
def test_any_completion_is_read_or_refused(payload):
    read(payload)


@given(st.lists(nearly_right() | values, max_size=4))
def test_any_stream_is_read_or_refused(chunks):
    body = EventBody()
    try:
        for chunk in chunks:
            body.feed(f"data: {json.dumps(chunk)}\n\n".encode())
        body.feed(b"data: [DONE]\n\n")
        body.close()
        payload = body.payload()
    except ModelError:
        return
    read(payload)


@given(st.binary())
def test_any_bytes_are_a_stream_or_refused(data):
    body = EventBody()
    try:
        body.feed(data)
        body.close()
    except ModelError:
        return
    assert body.payload() == {"choices": []}
