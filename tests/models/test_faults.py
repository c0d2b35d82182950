"""P12: an endpoint that misbehaves costs at most the deadline, and no part of a reply is taken for the whole.

Each of the 34 faults, met always and met once, streamed and not; then all of them mixed by a seeded schedule, many
conversations at once. Every question ends in a whole reply or in a `ModelError`, within the deadline and a second.
"""

import asyncio
import time

import pytest

from faults import FAULTS
from faultserver import FaultServer, in_loop
from stemma.models.errors import (
    BrokenReply,
    ContextTooLong,
    EndpointFailed,
    ModelError,
    RateLimited,
    Refused,
    ReplyTooLarge,
    TooSlow,
    Unreachable,
)
from stemma.models.openai_api import OpenAIModel
from stemma.models.protocol import Delta, Reply, Request
from stemma.models.retry import Retries
from stemma.models.wire import Deadlines

SAID = "Grüße, 世界: " + "0123456789" * 30
KEY = "sk-fault-canary-0123456789"
DEADLINES = Deadlines(connect=0.3, first_byte=0.3, between_bytes=0.3, total=0.8)
CUT = (Unreachable, BrokenReply)

ALWAYS: dict[str, tuple[type[ModelError], ...]] = {
    "rate_limit_seconds": (RateLimited,),
    "rate_limit_date": (RateLimited,),
    "rate_limit_bare": (RateLimited,),
    "rate_limit_forever": (RateLimited,),
    "error_500": (EndpointFailed,),
    "bad_gateway_html": (EndpointFailed,),
    "error_503": (EndpointFailed,),
    "overloaded_529": (RateLimited,),
    "context_length": (ContextTooLong,),
    "unauthorised_echoing_key": (Refused,),
    "forbidden": (Refused,),
    "timeout_408": (EndpointFailed,),
    "connection_refused": (Unreachable,),
    "reset_before_headers": (Unreachable,),
    "reset_in_body": (Unreachable,),
    "never_answers": (TooSlow,),
    "one_byte_at_a_time": (TooSlow,),
    "content_length_too_long": (Unreachable,),
    "content_length_too_short": CUT,
    "stream_without_end": CUT,
    "stream_cut_in_character": CUT,
    "stream_cut_in_crlf": CUT,
    "bad_json_event": (BrokenReply,),
    "error_in_stream": (EndpointFailed,),
    "empty_choices": (BrokenReply,),
    "nothing_said": (BrokenReply,),
    "gzip_bomb": (BrokenReply,),
    "endless_stream": (ReplyTooLarge, TooSlow),
    "redirect": (Refused,),
}
"""What each fault ends in if it is met every time; the others end in a reply."""

ASKED_ONCE = {"context_length", "unauthorised_echoing_key", "forbidden", "redirect", "endless_stream"}
SLOW = {"never_answers", "one_byte_at_a_time"}


def model_at(server: FaultServer, **options) -> OpenAIModel:
    named = {
        "deadlines": DEADLINES,
        "retries": Retries(attempts=3, first=0.005, longest=0.02),
        "largest": 2**18,
        "tokens": "vllm",
        **options,
    }
    return OpenAIModel("m", server.base_url, KEY, **named)


def question(said: str = SAID) -> Request:
    return Request(messages=[{"role": "user", "content": said}])


class Lateness:
    """How late the event loop itself is on this machine, which is nobody's fault but the machine's."""

    def __init__(self) -> None:
        self._ticks: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.05)
            now = time.monotonic()
            self._ticks.append((now, now - begun - 0.05))

    def between(self, begun: float, ended: float) -> float:
        """Seconds that the loop lost between two moments; the tick that tells of it may come after them."""
        return sum(late for now, late in self._ticks if begun <= now <= ended + 0.2 + late)


async def outcome(model: OpenAIModel, said: str = SAID, on_delta=None) -> Reply | ModelError:
    """What came of a question, which came in time."""
    begun = time.monotonic()
    result = await ending(model, said, on_delta)
    assert time.monotonic() - begun <= DEADLINES.total + 1.0, result
    return result


async def ending(model: OpenAIModel, said: str, on_delta=None) -> Reply | ModelError:
    try:
        return await model.reply(question(said), on_delta)
    except ModelError as problem:
        return problem


def check_whole(reply: Reply, said: str = SAID) -> None:
    """Nothing of it is missing, and nothing in it was made up."""
    calls = reply.message.get("tool_calls")
    if not calls:
        assert reply.message == {"role": "assistant", "content": f"you said: {said}"}
        return
    assert reply.call.finish_reason in ("tool_calls", "length")
    assert {call["function"]["arguments"] for call in calls} <= {
        '{"a": 1}',
        '{"a": 1,, oops',
        '{"path": "a.txt", "text": "Once up',
    }
    assert len({call["id"] for call in calls}) == len(calls)


def check_error(problem: ModelError) -> None:
    assert str(problem)
    for text in (str(problem), repr(problem), problem.body, *getattr(problem, "__notes__", ())):
        assert KEY not in text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS)
@in_loop
async def test_a_fault_that_is_always_met_ends_in_its_error_or_in_a_whole_reply(fault, stream):
    async with FaultServer(always=fault, seed=len(fault)) as server, model_at(server, stream=stream) as model:
        for _ in range(1 if fault in SLOW else 3):  # some faults have three forms
            result = await outcome(model)
            if fault not in ALWAYS:
                assert isinstance(result, Reply), result
                check_whole(result)
                continue
            assert isinstance(result, ALWAYS[fault]), result
            check_error(result)
            assert fault not in ASKED_ONCE or len(server.requests) <= 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", [fault for fault in ALWAYS if fault not in ASKED_ONCE | SLOW])
@in_loop
async def test_a_fault_that_may_pass_is_met_once_and_then_there_is_a_reply(fault, stream):
    retries = Retries(attempts=9, first=0.01, longest=0.05)
    async with FaultServer([fault], away=0.05) as server, model_at(server, stream=stream, retries=retries) as model:
        result = await outcome(model)
    assert isinstance(result, Reply), result
    check_whole(result)
    assert result.call.extra["attempts"] >= 2


@pytest.mark.parametrize("fault", sorted(SLOW))
@in_loop
async def test_a_slow_endpoint_is_asked_again_if_there_is_time(fault):
    deadlines = Deadlines(connect=0.1, first_byte=0.1, between_bytes=0.1, total=9.0)
    async with FaultServer([fault], pace=0.3) as server, model_at(server, deadlines=deadlines) as model:
        reply = await model.reply(question())
    check_whole(reply)
    assert reply.call.extra["attempts"] == 2


@in_loop
async def test_what_is_shown_before_a_failure_is_taken_back():
    shown: list[Delta] = []
    async with FaultServer(["stream_without_end", "error_in_stream"]) as server, model_at(server) as model:
        result = await outcome(model, on_delta=shown.append)
    assert isinstance(result, Reply)
    kinds = [delta.kind for delta in shown]
    assert kinds.count("again") == 2
    last = len(kinds) - kinds[::-1].index("again")
    assert "".join(delta.text for delta in shown[last:]) == f"you said: {SAID}"


@in_loop
async def test_credentials_do_not_follow_a_redirect():
    async with FaultServer() as elsewhere:

        async def redirect(exchange) -> None:
            await exchange.whole(b"", 307, Location=f"{elsewhere.base_url}/chat/completions")

        async with FaultServer(always=redirect) as server, model_at(server) as model:
            result = await outcome(model)
    assert isinstance(result, Refused)
    assert elsewhere.base_url in str(result)
    assert (elsewhere.connections, elsewhere.requests) == (0, [])


@in_loop
async def test_wrong_logprobs_and_usage_cost_the_tokens_but_not_the_reply():
    async with FaultServer(["wrong_logprobs", "wrong_usage"] * 10) as server, model_at(server) as model:
        for _ in range(10):
            logprobs, usage = await outcome(model), await outcome(model)
            assert isinstance(logprobs, Reply)
            assert (logprobs.call.prompt_ids, logprobs.call.sampled_ids, logprobs.call.logprobs) == (None, None, None)
            assert "logprob" in logprobs.call.extra["tokens"]
            assert isinstance(usage, Reply)
            assert usage.call.usage == {}


async def storm(seed: int, questions: int, at_once: int) -> tuple[int, int, set[str]]:
    """Many conversations against a seeded mix of all faults: replies, failures, faults met."""
    server = FaultServer.seeded(seed, questions * 4, away=0.05)
    results: list[tuple[float, float, Reply | ModelError]] = []
    late = Lateness()

    async def converse(model: OpenAIModel, numbers: list[int]) -> None:
        for number in numbers:
            said, begun = f"{number} {SAID}", time.monotonic()
            result = await ending(model, said, (lambda _: None) if number % 2 else None)
            results.append((begun, time.monotonic(), result))
            check_whole(result, said) if isinstance(result, Reply) else check_error(result)

    async with server, model_at(server) as model:
        watching = asyncio.create_task(late.watch())
        async with asyncio.TaskGroup() as group:
            for first in range(at_once):
                group.create_task(converse(model, list(range(first, questions, at_once))))
        await asyncio.sleep(0.1)
        watching.cancel()
    assert len(results) == questions
    for begun, ended, result in results:
        assert ended - begun <= DEADLINES.total + 1.0 + late.between(begun, ended), result
    replies = sum(isinstance(result, Reply) for _, _, result in results)
    return replies, questions - replies, set(server.met)


@in_loop
async def test_all_faults_mixed_end_each_in_a_whole_reply_or_a_typed_error():
    replies, failures, met = await storm(seed=1, questions=34 * 40, at_once=128)
    assert met == {*FAULTS, "good"}
    assert min(replies, failures) > 0  # how many fit into the deadlines is up to the machine


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@in_loop
async def test_all_faults_mixed_again_and_again(seed):
    await storm(seed=100 + seed, questions=34 * 50, at_once=128)
