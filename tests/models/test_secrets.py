"""P17: the key appears in no error, log or record, also when the endpoint echoes it in every way it can think of."""

import json
import logging
import pickle
import traceback

import msgspec
import pytest

from completions import call, completion, event, events_of
from faults import FAULTS
from faultserver import Exchange, FaultServer, in_loop
from stemma.models.errors import ModelError
from stemma.models.llama_server import LlamaServerModel
from stemma.models.openai_api import OpenAIModel
from stemma.models.protocol import Reply, Request
from stemma.models.retry import Retries
from stemma.models.wire import Deadlines

KEY = "sk-canary-Zx81/+=~q"
QUICK = {
    "retries": Retries(attempts=2, first=0.001, longest=0.01),
    "deadlines": Deadlines(connect=0.2, first_byte=0.2, between_bytes=0.2, total=0.4),
    "largest": 2**17,
}


async def ask(model: OpenAIModel) -> Reply | ModelError:
    try:
        return await model.reply(Request(messages=[{"role": "user", "content": "hi"}]))
    except ModelError as problem:
        return problem


def everything_said(result: Reply | ModelError) -> str:
    """All that a log, a store or a screen could get to see."""
    if isinstance(result, Reply):
        return repr(result) + json.dumps(result.message) + result.call.to_bytes().decode()
    shown = "".join(traceback.format_exception(result))
    return shown + repr(result) + result.body + repr(result.__dict__) + repr(pickle.dumps(result)) + chained(result)


def chained(problem: BaseException | None) -> str:
    """Errors that hang on an error: those of aiohttp hold the headers of the request."""
    found = ""
    while problem is not None:
        found += repr(vars(problem))
        problem = problem.__cause__ or problem.__context__
    return found


ECHO = json.dumps({"error": {"message": f"bad key {KEY}", "headers": {"Authorization": f"Bearer {KEY}"}}})


async def echo_in_status(e: Exchange) -> None:
    await e.whole(ECHO.encode(), 400, X_Request_Id=KEY)


async def echo_in_page(e: Exchange) -> None:
    await e.whole(f"<html>{'x' * 1995}{KEY}</html>".encode(), 502, Content_Type="text/html", Retry_After=KEY)


async def echo_in_redirect(e: Exchange) -> None:
    await e.whole(b"", 307, Location=f"http://127.0.0.1:9/?key={KEY}")


async def echo_in_reply(e: Exchange) -> None:
    answer = completion(f"your key: {KEY}", reasoning_content=f"the key is {KEY}", tool_calls=[call(arguments=KEY)])
    await e.completion({**answer, "id": KEY, "model": KEY, "provider": KEY, "usage": {"note": KEY}})


async def echo_in_finish(e: Exchange) -> None:
    await e.completion(completion("x", finish=KEY))


async def echo_in_stream(e: Exchange) -> None:
    await e.stream([*events_of(completion("x"))[:2], f"data: {ECHO}\n\n".encode()])


async def echo_in_bad_event(e: Exchange) -> None:
    await e.stream([b"data: {" + KEY.encode() + b"\n\n"])


async def echo_in_bad_json(e: Exchange) -> None:
    await e.whole(b"{" + KEY.encode())


async def echo_in_no_object(e: Exchange) -> None:
    await e.json([KEY])


async def echo_in_bad_value(e: Exchange) -> None:
    await e.whole(json.dumps(completion("x", **{KEY: float("nan")})).encode())


async def echo_in_logprobs(e: Exchange) -> None:
    answer = completion("x")
    answer["choices"][0]["logprobs"] = {"content": [{"token": KEY, "logprob": -1.0}]}
    await e.completion(answer)


async def echo_in_coding(e: Exchange) -> None:
    await e.whole(b"x", Content_Encoding=KEY)


async def echo_in_status_line(e: Exchange) -> None:
    await e.send(f"HTTP/9.9 {KEY}\r\n\r\n".encode())
    e.hang_up()


async def echo_in_split_stream(e: Exchange) -> None:
    await e.stream([*(event({"choices": [{"index": 0, "delta": {"content": one}}]}) for one in KEY), *end()])


def end() -> list[bytes]:
    return [event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}), b"data: [DONE]\n\n"]


ECHOES = [
    echo_in_status,
    echo_in_page,
    echo_in_redirect,
    echo_in_reply,
    echo_in_finish,
    echo_in_stream,
    echo_in_bad_event,
    echo_in_bad_json,
    echo_in_no_object,
    echo_in_bad_value,
    echo_in_logprobs,
    echo_in_coding,
    echo_in_status_line,
    echo_in_split_stream,
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("answer", [*ECHOES, *FAULTS], ids=lambda answer: getattr(answer, "__name__", answer))
@in_loop
async def test_the_key_is_in_no_error_log_or_record(answer, stream, caplog):
    caplog.set_level(logging.DEBUG)
    async with FaultServer(always=answer) as server:
        async with OpenAIModel("m", server.base_url, KEY, stream=stream, **QUICK) as model:
            result = await ask(model)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    said = everything_said(result) + caplog.text + repr(model)
    assert KEY not in said
    assert json.dumps(KEY)[1:-1] not in said


@pytest.mark.parametrize("kind", ["content", "reasoning_content"])
@in_loop
async def test_a_key_that_streams_in_pieces_is_not_shown(kind):
    pieces = [event({"choices": [{"index": 0, "delta": {kind: one}}]}) for one in f"it is {KEY}."]
    shown = []
    async with (
        FaultServer(always=lambda e: e.stream([*pieces, *end()])) as server,
        OpenAIModel("m", server.base_url, KEY, **QUICK) as model,
    ):
        reply = await model.reply(Request(messages=[{"role": "user", "content": "hi"}]), shown.append)
    assert "".join(delta.text for delta in shown) == "it is [secret]."
    assert reply.call.extra["trainable"] is False


@in_loop
async def test_a_key_among_the_parameters_is_sent_and_not_recorded():
    async with (
        FaultServer() as server,
        OpenAIModel("m", server.base_url, extra_body={"auth": {"api_key": KEY}}, **QUICK) as model,
    ):
        reply = await model.reply(Request(messages=[{"role": "user", "content": "hi"}], params={"token": KEY[::-1]}))
    assert server.requests[0].body["auth"] == {"api_key": KEY}
    assert server.requests[0].body["token"] == KEY[::-1]
    assert reply.call.params == {"auth": {"api_key": "[secret]"}, "token": "[secret]"}


@pytest.mark.parametrize("before", [0, 290, 490])
@in_loop
async def test_a_llama_server_that_echoes_its_key(before):
    async def refuse(e: Exchange) -> None:
        await e.whole(f"{'x' * before}{e.request.headers['authorization']}".encode(), 400)

    async with FaultServer(always=refuse) as server:
        result = await ask(LlamaServerModel("m", server.base_url, KEY))
    assert isinstance(result, ModelError)
    assert "canary" not in everything_said(result)


@in_loop
async def test_a_key_in_a_header_of_its_own_is_as_secret():
    async with (
        FaultServer(always=echo_in_reply) as server,
        OpenAIModel("m", server.base_url, headers={"api-key": KEY}, **QUICK) as model,
    ):
        result = await ask(model)
    assert isinstance(result, Reply)
    assert KEY not in everything_said(result)
    assert KEY.encode() not in msgspec.json.encode(result.message)


@in_loop
async def test_what_the_user_wrote_is_sent_as_it_is():
    """Only what comes from the endpoint is cleaned: a user may talk about a key on purpose."""
    async with FaultServer() as server, OpenAIModel("m", server.base_url, KEY) as model:
        await model.reply(Request(messages=[{"role": "user", "content": f"is {KEY} a good key?"}]))
    assert server.requests[0].body["messages"][0]["content"] == f"is {KEY} a good key?"
