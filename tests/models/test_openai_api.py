"""Promises of the model behind an endpoint, over real connections."""

import asyncio
import json

import pytest

from completions import call, completion, events_of
from faultserver import Exchange, FaultServer, in_loop
from stemma.errors import BadMessage
from stemma.models.errors import BadEndpoint, ContextTooLong, Refused
from stemma.models.openai_api import OpenAIModel
from stemma.models.protocol import Delta, Model, Request
from stemma.models.retry import Retries

QUICK = Retries(attempts=3, first=0.01, longest=0.05)


def ask(text: str = "hi", **params) -> Request:
    return Request(messages=[{"role": "user", "content": text}], params=params)


def answering(payload: dict):
    async def answer(exchange: Exchange) -> None:
        await exchange.completion(payload)

    return answer


@in_loop
async def test_a_question_gets_its_answer():
    async with FaultServer() as server, OpenAIModel("m", server.base_url, "sk-12345678", clock=lambda: 5.0) as model:
        reply = await model.reply(ask())
    assert reply.message == {"role": "assistant", "content": "you said: hi"}
    assert (reply.call.model, reply.call.finish_reason, reply.call.started) == ("m", "stop", 5.0)
    assert 0 < reply.call.seconds < 5
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert request.headers["authorization"] == "Bearer sk-12345678"
    assert request.headers["accept-encoding"] == "identity"


@in_loop
async def test_a_streamed_answer_is_the_same_answer():
    tools = completion(None, finish="tool_calls", tool_calls=[call(), call("mul", '{"b": 2}', "c2")], reasoning="Hm.")
    for payload in (completion("Grüße, 世界"), tools):
        async with FaultServer(always=answering(payload)) as server, OpenAIModel("m", server.base_url) as model:
            shown: list[Delta] = []
            whole, streamed = await model.reply(ask()), await model.reply(ask(), shown.append)
        assert streamed.message == whole.message
        assert streamed.call.usage == whole.call.usage
        assert "".join(d.text for d in shown if d.kind == "text") == (whole.message["content"] or "")
        assert server.requests[1].body["stream_options"] == {"include_usage": True}


@in_loop
async def test_an_endpoint_that_streams_unasked_or_not_at_all_is_understood():
    async def stream(exchange: Exchange) -> None:
        await exchange.stream(events_of(completion("streamed")))

    async def whole(exchange: Exchange) -> None:
        await exchange.json(completion("whole"))

    async with FaultServer([stream, whole]) as server, OpenAIModel("m", server.base_url) as model:
        assert (await model.reply(ask())).message["content"] == "streamed"
        assert (await model.reply(ask(), lambda _: None)).message["content"] == "whole"


@in_loop
async def test_params_are_sent_and_recorded_and_the_nearest_wins():
    async with (
        FaultServer() as server,
        OpenAIModel(
            "m",
            server.base_url,
            params={"temperature": 0.5, "top_p": 0.9, "seed": 1},
            extra_body={"chat_template_kwargs": {"enable_thinking": False}, "temperature": 9},
        ) as model,
    ):
        reply = await model.reply(ask(temperature=1.0, seed=None))
    sent = {"chat_template_kwargs": {"enable_thinking": False}, "temperature": 1.0, "top_p": 0.9}
    assert reply.call.params == sent
    assert {key: value for key, value in server.requests[0].body.items() if key not in ("model", "messages")} == sent


@in_loop
async def test_token_ids_are_asked_for_in_the_way_of_the_engine():
    async with FaultServer() as server, OpenAIModel("m", server.base_url, tokens="vllm") as model:
        await model.reply(ask())
    assert server.requests[0].body["return_token_ids"] is True
    assert server.requests[0].body["logprobs"] is True


@pytest.mark.parametrize("key", ["n", "stream", "messages", "tools", "model"])
@in_loop
async def test_what_has_its_own_way_in_is_no_parameter(key):
    async with FaultServer() as server, OpenAIModel("m", server.base_url) as model:
        with pytest.raises(BadEndpoint, match=key):
            await model.reply(ask(**{key: 1}))
    assert server.requests == []


@in_loop
async def test_a_parameter_that_no_record_can_hold_is_refused_before_it_costs_anything():
    async with FaultServer() as server, OpenAIModel("m", server.base_url) as model:
        with pytest.raises(BadMessage):
            await model.reply(ask(temperature=float("nan")))
        with pytest.raises(BadMessage):
            await model.reply(Request(messages=[], tools=[{"x": {1, 2}}]))
    assert server.requests == []


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("reasoning", {"role": "assistant", "content": "4", "reasoning": "Hm."}),
        ("reasoning_content", {"role": "assistant", "content": "4", "reasoning_content": "Hm."}),
        (None, {"role": "assistant", "content": "4"}),
    ],
)
@in_loop
async def test_earlier_reasoning_goes_back_under_the_name_the_endpoint_knows(name, sent):
    said = {"role": "assistant", "content": "4", "reasoning": "Hm."}
    async with FaultServer() as server, OpenAIModel("m", server.base_url, reasoning_field=name) as model:
        await model.reply(Request(messages=[said, {"role": "user", "content": "hi"}]))
    assert server.requests[0].body["messages"][0] == sent
    assert said["reasoning"] == "Hm."


@in_loop
async def test_samples_come_in_one_request_where_the_endpoint_can_do_that():
    async with FaultServer() as server, OpenAIModel("m", server.base_url) as model:
        replies = await model.samples(ask(), 4)
        assert await model.samples(ask(), 0) == []
    assert len(replies) == 4
    assert len(server.requests) == 1
    assert len({reply.call.id for reply in replies}) == 4


async def ignoring_n(exchange: Exchange) -> None:
    await exchange.completion(completion("one"))


async def refusing_n(exchange: Exchange) -> None:
    if "n" in exchange.request.body:
        await exchange.json({"error": {"message": "n is not supported"}}, 400)
    else:
        await exchange.completion(completion("one"))


@pytest.mark.parametrize("answer", [ignoring_n, refusing_n])
@in_loop
async def test_where_it_cannot_it_is_asked_again_with_another_seed(answer):
    async with FaultServer(always=answer) as server, OpenAIModel("m", server.base_url, params={"seed": 7}) as model:
        replies = await model.samples(ask(), 4)
        asked = len(server.requests)
        again = await model.samples(ask(), 4)
    assert (len(replies), len(again)) == (4, 4)
    assert asked == (4 if answer is ignoring_n else 5)
    assert len(server.requests) == asked + 4  # by now it is known
    assert sorted(reply.call.params["seed"] for reply in replies) == [7, 8, 9, 10]


@pytest.mark.parametrize("options", [{"samples_together": False}, {"tokens": "llama.cpp"}])
@in_loop
async def test_samples_are_asked_for_one_by_one_where_n_is_not_to_be_trusted(options):
    async with FaultServer() as server, OpenAIModel("m", server.base_url, **options) as model:
        assert len(await model.samples(ask(), 3)) == 3
    assert all("n" not in request.body for request in server.requests)


@in_loop
async def test_a_failed_sample_fails_them_all_and_leaves_nothing_running():
    async def refuse(exchange: Exchange) -> None:
        await exchange.json({"error": {"message": "no"}}, 403)

    async with FaultServer([ignoring_n, refuse]) as server, OpenAIModel("m", server.base_url) as model:
        with pytest.raises(Refused):
            await model.samples(ask(), 4)
        assert len(asyncio.all_tasks()) <= 1 + server.connections


@in_loop
async def test_a_context_that_does_not_fit_is_not_tried_again_one_by_one():
    async with FaultServer(always="context_length") as server, OpenAIModel("m", server.base_url) as model:
        with pytest.raises(ContextTooLong):
            await model.samples(ask(), 4)
    assert len(server.requests) == 1


@in_loop
async def test_any_text_goes_out_and_comes_in():
    text = "lone \ud800, nul \x00, 世界 🦦, \u2028"

    async def echo(exchange: Exchange) -> None:
        await exchange.json(completion(exchange.said))

    async with FaultServer(always=echo) as server, OpenAIModel("m", server.base_url) as model:
        assert (await model.reply(ask(text))).message["content"] == text


@in_loop
async def test_large_contexts_and_large_replies_pass():
    async def echo(exchange: Exchange) -> None:
        await exchange.completion(completion(exchange.said))

    async with FaultServer(always=echo) as server, OpenAIModel("m", server.base_url) as model:
        text = "x" * 3_000_000
        assert (await model.reply(ask(text))).message["content"] == text


@pytest.mark.parametrize("kind", [ZeroDivisionError, BrokenPipeError, TimeoutError, RecursionError])
@in_loop
async def test_a_callback_that_fails_is_the_callers_failure(kind):
    def fail(_: Delta) -> None:
        raise kind("mine")

    async with FaultServer() as server, OpenAIModel("m", server.base_url) as model:
        with pytest.raises(kind, match="mine"):
            await model.reply(ask(), fail)
        assert len(server.requests) == 1
        assert (await model.reply(ask())).message["content"] == "you said: hi"


@in_loop
async def test_an_endpoint_that_knows_no_stream_options_is_not_sent_any():
    options = {"params": {"stream_options": None}, "stream": True}
    async with FaultServer() as server, OpenAIModel("m", server.base_url, **options) as model:
        await model.reply(ask())
    assert "stream_options" not in server.requests[0].body


def test_it_is_a_model():
    model: Model = OpenAIModel("m", "http://127.0.0.1:9/v1", context_window=4096)
    assert (model.name, model.context_window) == ("m", 4096)
    assert json.dumps(repr(model))
