"""Promises of reading a completion: whole replies with honest calls, or a typed error."""

import pytest

from completions import call, completion
from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.models.completion import Asked, read_completion, read_usage
from stemma.models.errors import BrokenReply, EndpointFailed, Refused
from stemma.models.prices import Prices
from stemma.models.protocol import Reply, Request
from stemma.redact import Redactor

KEY = "sk-very-secret-1"


def read(payload: object, **named) -> list[Reply]:
    messages = named.pop("messages", [{"role": "user", "content": "hi"}])
    request = Request(messages=messages, tools=named.pop("tools", None))
    named = {"params": {"temperature": 0.5}, **named}
    asked = Asked(model="m", request=request, started=100.0, seconds=2.5, **named)
    return read_completion(payload, asked, Redactor([KEY]))


def read_one(payload: object, **named) -> Reply:
    [reply] = read(payload, **named)
    return reply


def test_a_call_says_how_its_reply_was_sampled():
    tools = [{"type": "function", "function": {"name": "add"}}]
    payload = {**completion("Hello."), "model": "m-2024", "system_fingerprint": "fp1"}
    reply = read_one(payload, tools=tools, headers={"x-request-id": "req-9"}, attempt=3)
    assert reply.message == {"role": "assistant", "content": "Hello."}
    sampled = reply.call
    assert (sampled.model, sampled.id, sampled.finish_reason) == ("m-2024", "cmpl-1", "stop")
    assert (sampled.tools, sampled.params) == (tools, {"temperature": 0.5})
    assert (sampled.started, sampled.seconds, sampled.cost) == (100.0, 2.5, None)
    assert sampled.usage == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    assert sampled.extra == {
        "request_id": "req-9",
        "asked_model": "m",
        "attempts": 3,
        "system_fingerprint": "fp1",
    }


def test_where_it_stopped_and_which_weights_sampled_it_is_kept_where_an_engine_says_so():
    payload = completion("Hello.")
    payload["choices"][0] |= {"stop_reason": 151645, "meta_info": {"weight_version": "step-7"}}
    assert read_one(payload).call.extra == {"request_id": "cmpl-1", "stop_token": 151645, "policy_version": "step-7"}
    payload["choices"][0] |= {"stop_reason": None, "matched_stop": "###", "meta_info": {"weight_version": None}}
    assert read_one(payload).call.extra == {"request_id": "cmpl-1", "stop_token": "###"}


def test_reasoning_has_one_place_and_the_text_as_it_came_is_kept():
    tagged = read_one(completion("<think>Is it 7?</think>\n\nSeven"))
    assert tagged.message == {"role": "assistant", "content": "Seven", "reasoning": "Is it 7?"}
    assert tagged.call.extra["raw"] == "<think>Is it 7?</think>\n\nSeven"
    field = read_one(completion("Seven", reasoning_content="Is it 7?"))
    assert field.message == tagged.message
    assert field.call.extra["reasoning_field"] == "reasoning_content"
    assert "raw" not in field.call.extra


def test_fields_that_say_nothing_go_because_endpoints_refuse_them_when_they_come_back():
    odd = completion("Hello.", refusal=None, tool_calls=[], annotations=[], audio=None, function_call=None)
    assert read_one(odd).message == {"role": "assistant", "content": "Hello."}


def test_a_tool_call_needs_no_content():
    reply = read_one(completion(None, finish="tool_calls", tool_calls=[call()]))
    assert reply.message == {"role": "assistant", "content": None, "tool_calls": [call()]}
    assert reply.call.extra == {"request_id": "cmpl-1"}


def test_ids_that_were_made_are_told():
    earlier = {"role": "assistant", "content": None, "tool_calls": [call(call_id="call00100")]}
    reply = read_one(completion(None, tool_calls=[call(call_id=None)]), messages=[earlier])
    assert reply.message["tool_calls"][0]["id"] == "call00101"
    assert reply.call.extra["call_ids"] == ["call00101"]


def test_what_was_cut_by_the_limit_is_a_reply_and_stays_as_it_was_cut():
    reply = read_one(completion(None, finish="length", tool_calls=[call(arguments='{"text": "Once up')]))
    assert reply.message["tool_calls"][0]["function"]["arguments"] == '{"text": "Once up'
    assert reply.call.finish_reason == "length"


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"message": "hello"}]},
        completion(None),
        completion(None, tool_calls=[], reasoning=None),
        completion("half a re", finish="error"),
        completion("half a re", finish="abort"),
        completion("x", tool_calls="add"),
        completion("x", odd=float("nan")),
        completion("x", odd=10**30),
    ],
)
def test_what_is_no_whole_reply_is_broken(payload):
    with pytest.raises(BrokenReply):
        read(payload)


def test_a_value_that_is_nested_too_deep_is_broken():
    deep: list = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(BrokenReply):
        read(completion("x", odd=deep))


def test_silence_is_a_reply_and_nothing_is_not():
    assert read_one(completion("")).message["content"] == ""
    assert read_one(completion(None, refusal="I will not.")).message["refusal"] == "I will not."
    assert read_one(completion(None, reasoning="Hm.")).message["reasoning"] == "Hm."


def test_what_a_content_filter_emptied_is_refused():
    with pytest.raises(Refused, match="content filter"):
        read(completion(None, finish="content_filter"))


def test_an_error_with_status_200_is_that_error():
    with pytest.raises(EndpointFailed, match="upstream"):
        read({"error": {"message": "upstream died"}})


@pytest.mark.parametrize(
    ("usage", "kept", "why"),
    [
        (None, {}, None),
        ({"prompt_tokens": 1, "completion_tokens": 2}, {"prompt_tokens": 1, "completion_tokens": 2}, None),
        ({"prompt_tokens": -1}, {}, "prompt_tokens is -1"),
        ({"completion_tokens": 10**30}, {}, f"completion_tokens is {10**30}"),
        ({"completion_tokens": 1.5}, {}, "completion_tokens is 1.5"),
        ({"completion_tokens": "12"}, {}, "completion_tokens is '12'"),
        ({"completion_tokens": None}, {"completion_tokens": None}, None),
        ("12", {}, "it is no object"),
    ],
)
def test_a_usage_is_believed_or_left_out_with_a_reason(usage, kept, why):
    assert read_usage(usage) == (kept, why)
    reply = read_one({**completion(), "usage": usage})
    assert (reply.call.usage, reply.call.extra.get("usage")) == (kept, why)


def test_the_cost_is_what_the_endpoint_said_or_what_the_prices_say_or_unknown():
    assert read_one(completion()).call.cost is None
    assert read_one(completion(), prices=Prices(prompt=1.0, completion=2.0)).call.cost == pytest.approx(17e-6)
    paid = {**completion(), "usage": {"prompt_tokens": 7, "completion_tokens": 5, "cost": 0.25}}
    assert read_one(paid, prices=Prices(prompt=1.0, completion=2.0)).call.cost == 0.25
    odd = {**completion(), "usage": {"prompt_tokens": 7, "completion_tokens": 5, "cost": -1}}
    assert read_one(odd).call.cost is None


def test_tokens_are_kept_packed_or_left_out_with_a_reason():
    payload = {**completion(), "prompt_token_ids": [1, 2, 3, 4, 5, 6, 7]}
    choice = payload["choices"][0]
    choice["token_ids"] = [5, 6, 7, 8, 9]
    choice["logprobs"] = {"content": [{"token": "x", "logprob": -0.5}] * 5}
    sampled = read_one(payload).call
    assert list(unpack_ids(sampled.prompt_ids)) == [1, 2, 3, 4, 5, 6, 7]
    assert list(unpack_ids(sampled.sampled_ids)) == [5, 6, 7, 8, 9]
    assert list(unpack_logprobs(sampled.logprobs)) == [-0.5] * 5
    assert "tokens" not in sampled.extra
    choice["token_ids"].append(10)
    sampled = read_one(payload).call
    assert (sampled.prompt_ids, sampled.sampled_ids, sampled.logprobs) == (None, None, None)
    assert sampled.extra["tokens"] == "6 sampled ids came with 5 logprobs"


def test_logprobs_without_ids_are_kept_as_they_came():
    payload = completion()
    entries = [{"token": "x", "logprob": -0.5, "top_logprobs": []}] * 5
    payload["choices"][0]["logprobs"] = {"content": entries}
    assert read_one(payload).call.extra["logprobs"] == entries


def test_alternatives_that_were_asked_for_are_kept_beside_the_ids():
    payload = completion()
    entries = [{"token": "x", "id": 5, "logprob": -0.5, "top_logprobs": [{"id": 5, "logprob": -0.5}]}] * 5
    payload["choices"][0]["logprobs"] = {"content": entries}
    assert "logprobs" not in read_one(payload).call.extra
    asked = read_one(payload, params={"logprobs": True, "top_logprobs": 2}).call
    assert list(unpack_ids(asked.sampled_ids)) == [5] * 5
    assert asked.extra["logprobs"] == entries


def test_several_choices_are_several_events_and_the_first_carries_what_they_cost():
    first, second = read(completion("same", n=2), prices=Prices(prompt=1.0, completion=1.0))
    assert first.message == second.message
    assert (first.call.id, second.call.id) == ("cmpl-1/0", "cmpl-1/1")
    assert (first.call.usage["completion_tokens"], second.call.usage) == (10, {})
    assert first.call.cost is not None
    assert second.call.cost is None
    assert second.call.extra["shares"] == "cmpl-1"


def test_a_secret_that_the_endpoint_echoes_is_in_no_record():
    payload = {**completion(f"your key is {KEY}"), "id": KEY, "model": KEY, "system_fingerprint": KEY}
    payload["choices"][0]["token_ids"] = [1, 2, 3, 4, 5]
    reply = read_one(payload, headers={"x-request-id": KEY})
    assert KEY not in repr(reply)
    assert reply.message["content"] == "your key is [secret]"
    assert reply.call.extra["redacted"] is True
    assert reply.call.sampled_ids is None
    assert KEY not in repr(read_one(completion(f"<think>{KEY}</think>x")))
