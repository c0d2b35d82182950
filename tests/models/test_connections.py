"""Promises of connections: kept, reused, limited, given back; and of the deadlines on them."""

import asyncio
import socket

import pytest

from completions import completion, event, events_of
from faultserver import Exchange, FaultServer, good, in_loop
from stemma.models.errors import BrokenReply, TooSlow, Unreachable
from stemma.models.openai_api import OpenAIModel
from stemma.models.protocol import Delta, Request
from stemma.models.retry import Retries
from stemma.models.wire import Deadlines

QUICK = Retries(attempts=3, first=0.01, longest=0.05)


def ask(text: str = "hi", **params) -> Request:
    return Request(messages=[{"role": "user", "content": text}], params=params)


def answering(payload: dict):
    async def answer(exchange: Exchange) -> None:
        await exchange.completion(payload)

    return answer


@in_loop
async def test_connections_are_kept_and_reused():
    async with FaultServer() as server, OpenAIModel("m", server.base_url) as model:
        for i in range(20):
            await model.reply(ask(), (lambda _: None) if i % 2 else None)
        assert server.connections == 1


@in_loop
async def test_a_refusal_does_not_cost_the_connection():
    async with FaultServer(["error_500", "rate_limit_bare"]) as server:
        async with OpenAIModel("m", server.base_url, retries=QUICK) as model:
            await model.reply(ask())
        assert (len(server.requests), server.connections) == (3, 1)


@pytest.mark.parametrize(("many", "stream"), [(256, False), (256, True), (1_000, False)])
@in_loop
async def test_many_questions_at_once_each_get_their_own_answer(many, stream):
    async with FaultServer() as server, OpenAIModel("m", server.base_url, stream=stream) as model:
        replies = await asyncio.gather(*(model.reply(ask(f"number {i}")) for i in range(many)))
        assert server.connections <= many
    assert [reply.message["content"] for reply in replies] == [f"you said: number {i}" for i in range(many)]


@in_loop
async def test_no_more_connections_are_open_than_allowed():
    async with FaultServer() as server, OpenAIModel("m", server.base_url, connections=8) as model:
        await asyncio.gather(*(model.reply(ask()) for _ in range(200)))
        assert server.connections == 8


@in_loop
async def test_waiting_for_our_own_turn_is_not_the_endpoints_slowness():
    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(0.1)
        await good(exchange)

    deadlines = Deadlines(connect=0.1, first_byte=0.2, between_bytes=0.2, total=5.0)
    async with FaultServer(always=slowly) as server:
        async with OpenAIModel("m", server.base_url, connections=1, deadlines=deadlines) as model:
            await asyncio.gather(*(model.reply(ask()) for _ in range(8)))
        assert len(server.requests) == 8


@pytest.mark.parametrize(
    ("deadlines", "message"),
    [
        (Deadlines(connect=0.1, first_byte=0.1, total=9), "the first byte did not come within 0.2 s"),
        (Deadlines(total=0.2), "the time for the whole reply was over while waiting for the first byte"),
    ],
)
@in_loop
async def test_the_error_says_which_deadline_passed(deadlines, message):
    once = Retries(attempts=1)
    async with (
        FaultServer(always="never_answers") as server,
        OpenAIModel("m", server.base_url, deadlines=deadlines, retries=once) as model,
    ):
        with pytest.raises(TooSlow, match=message):
            await model.reply(ask())


@in_loop
async def test_a_stream_that_falls_silent_is_noticed_between_bytes():
    async def fall_silent(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(events_of(completion("hello"))[1])
        await asyncio.sleep(60)

    shown: list[Delta] = []
    deadlines = Deadlines(between_bytes=0.1, total=9)
    async with (
        FaultServer([fall_silent]) as server,
        OpenAIModel("m", server.base_url, deadlines=deadlines, retries=QUICK) as model,
    ):
        reply = await model.reply(ask(), shown.append)
    assert reply.call.extra["attempts"] == 2
    again = [i for i, delta in enumerate(shown) if delta.kind == "again"]
    assert len(again) == 1
    assert "the next byte did not come within 0.1 s" in shown[again[0]].text
    assert "".join(delta.text for delta in shown[again[0] + 1 :]) == "you said: hi"


@in_loop
async def test_an_endpoint_that_accepts_no_connection_is_too_slow():
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for waiting in (first, second):  # they fill the queue of those who wait to be accepted
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        deadlines = Deadlines(connect=0.2, total=9.0)
        async with OpenAIModel("m", base_url, deadlines=deadlines, retries=Retries(attempts=1)) as model:
            with pytest.raises(TooSlow, match=r"no connection to .* within 0\.2 s"):
                await model.reply(ask())


@in_loop
async def test_a_name_that_does_not_exist_is_unreachable():
    async with OpenAIModel("m", "http://nowhere.invalid/v1", retries=Retries(attempts=1)) as model:
        with pytest.raises(Unreachable, match=r"nowhere\.invalid"):
            await model.reply(ask())


@in_loop
async def test_a_cancelled_question_gives_its_place_back():
    async with FaultServer(["never_answers"]) as server, OpenAIModel("m", server.base_url, connections=1) as model:
        asking = asyncio.create_task(model.reply(ask()))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await model.reply(ask())).message["content"] == "you said: hi"


def test_one_model_serves_several_event_loops_one_after_another():
    model = OpenAIModel("m", "http://127.0.0.1:9/v1")

    async def once() -> str:
        async with FaultServer() as server:
            model._url = OpenAIModel("m", server.base_url)._url
            return (await model.reply(ask())).message["content"]

    assert [asyncio.run(once()) for _ in range(3)] == ["you said: hi"] * 3
    asyncio.run(model.close())


@in_loop
async def test_a_closed_model_can_be_asked_again():
    async with FaultServer() as server, OpenAIModel("m", server.base_url) as model:
        await model.reply(ask())
        await model.close()
        await model.close()
        await model.reply(ask())


@in_loop
async def test_a_reply_that_says_beforehand_that_it_is_too_large_is_not_read():
    async with FaultServer(always=answering(completion("x" * 5_000))) as server:
        async with OpenAIModel("m", server.base_url, largest=1_000) as model:
            with pytest.raises(BrokenReply, match="goes on past 1,000 bytes"):
                await model.reply(ask())
        assert len(server.requests) == 1


@in_loop
async def test_a_wait_that_the_endpoint_asks_for_is_honoured():
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with (
        FaultServer(["rate_limit_seconds", "rate_limit_date", "rate_limit_forever"]) as server,
        OpenAIModel("m", server.base_url, sleep=sleep, chance=lambda: 0.0) as model,
    ):
        reply = await model.reply(ask())
    assert reply.call.extra["attempts"] == 4
    assert waits[0] == 1.0
    assert 0.5 <= waits[1] <= 2.0
    assert waits[2] == 60.0


@in_loop
async def test_what_comes_after_the_end_mark_changes_nothing():
    async def talk_on(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for one in [*events_of(completion("done")), event({"choices": [{"index": 0, "delta": {"content": "!"}}]})]:
            await exchange.chunk(one)
        await asyncio.sleep(60)

    async with FaultServer([talk_on]) as server, OpenAIModel("m", server.base_url, stream=True) as model:
        async with asyncio.timeout(2):
            assert (await model.reply(ask())).message["content"] == "done"
        assert (await model.reply(ask())).message["content"] == "you said: hi"
        assert server.connections == 2  # the talkative one was not reused
