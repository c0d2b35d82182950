"""The 34 ways in which an endpoint misbehaves, by name; `faultserver.py` plays them.

Where one kind has several forms, the seeded chance of the exchange chooses among them.
"""

import asyncio
import gzip
import json
import time
from email.utils import formatdate
from itertools import count

from completions import call, completion, event, events_of
from faultserver import Answer, Exchange

FAULTS: dict[str, Answer] = {}
ERROR = {"error": {"message": "something went wrong", "type": "server_error"}}
SLOW_ANSWER = 3600.0


def fault(act: Answer) -> Answer:
    FAULTS[act.__name__] = act  # type: ignore[attr-defined]
    return act


@fault
async def rate_limit_seconds(e: Exchange) -> None:
    await e.json(ERROR, 429, Retry_After="1")


@fault
async def rate_limit_date(e: Exchange) -> None:
    await e.json(ERROR, 429, Retry_After=formatdate(time.time() + 2, usegmt=True))


@fault
async def rate_limit_bare(e: Exchange) -> None:
    await e.json(ERROR, 429)


@fault
async def rate_limit_forever(e: Exchange) -> None:
    await e.json(ERROR, 429, Retry_After="1000000000")


@fault
async def error_500(e: Exchange) -> None:
    await e.json(ERROR, 500)


@fault
async def bad_gateway_html(e: Exchange) -> None:
    await e.whole(b"<html><body><h1>502 Bad Gateway</h1></body></html>", 502, Content_Type="text/html")


@fault
async def error_503(e: Exchange) -> None:
    await e.whole(b"", 503)


@fault
async def overloaded_529(e: Exchange) -> None:
    await e.json({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529)


@fault
async def context_length(e: Exchange) -> None:
    message = "This model's maximum context length is 4096 tokens. Please reduce the length of the messages."
    await e.json({"error": {"message": message, "code": "context_length_exceeded"}}, 400)


@fault
async def unauthorised_echoing_key(e: Exchange) -> None:
    key = e.request.headers.get("authorization", "")
    await e.json({"error": {"message": f"Incorrect API key provided: {key}"}}, 401, X_Echo=key, X_Request_Id=key)


@fault
async def forbidden(e: Exchange) -> None:
    await e.json({"detail": "not for you"}, 403)


@fault
async def timeout_408(e: Exchange) -> None:
    await e.json(ERROR, 408)


@fault
async def connection_refused(e: Exchange) -> None:
    e.server.in_background(e.server.be_away())
    e.reset()


@fault
async def reset_before_headers(e: Exchange) -> None:
    e.reset()


@fault
async def reset_in_body(e: Exchange) -> None:
    await e.head(Content_Type="application/json", Content_Length=5000)
    await e.send(b'{"id": "cmpl-1", "choices": [{"mess')
    await asyncio.sleep(0.01)
    e.reset()


@fault
async def never_answers(e: Exchange) -> None:
    await asyncio.sleep(SLOW_ANSWER)


@fault
async def one_byte_at_a_time(e: Exchange) -> None:
    events = b"".join(events_of(completion(e.said)))
    await e.begin_stream()
    for at in range(len(events)):
        await e.chunk(events[at : at + 1])
        await asyncio.sleep(e.server.pace)


@fault
async def content_length_too_long(e: Exchange) -> None:
    await e.json(completion(e.said), Content_Length=100_000)
    e.hang_up()


@fault
async def content_length_too_short(e: Exchange) -> None:
    body = json.dumps(completion(e.said)).encode()
    await e.head(Content_Type="application/json", Content_Length=60)
    await e.send(body[:60])
    # The rest comes with it, or later, when the connection may have been taken for another request.
    await asyncio.sleep(e.chance.choice([0.0, 0.005]))
    await e.send(body[60:])


@fault
async def stream_without_end(e: Exchange) -> None:
    await cut_stream(e, b"".join(events_of(completion(e.said))[:-1]))


@fault
async def stream_cut_in_character(e: Exchange) -> None:
    whole = event({"choices": [{"index": 0, "delta": {"content": "Grüße"}}]})
    await cut_stream(e, whole[: whole.index("ü".encode()) + 1])


@fault
async def stream_cut_in_crlf(e: Exchange) -> None:
    whole = b"".join(events_of(completion(e.said))[:4]).replace(b"\n", b"\r\n")
    await cut_stream(e, whole[:-1])


async def cut_stream(e: Exchange, data: bytes) -> None:
    """A stream that ends too early: with its framing, without it, or with the connection."""
    how = e.chance.choice(["framed", "unframed", "closed"])
    await e.begin_stream(chunked=how != "closed")
    await (e.send(data) if how == "closed" else e.chunk(data))
    if how == "framed":
        await e.send(b"0\r\n\r\n")
    else:
        e.hang_up()


@fault
async def bad_json_event(e: Exchange) -> None:
    events = events_of(completion(e.said))
    await e.stream([*events[:2], b'data: {"choices": [{"delta": {"content": "x"}\n\n', *events[2:]])


@fault
async def error_in_stream(e: Exchange) -> None:
    error = e.chance.choice([ERROR, {"error": {"message": "upstream failed", "code": 502}}])
    await e.stream([*events_of(completion(e.said))[:3], event(error), b"data: [DONE]\n\n"])


@fault
async def empty_choices(e: Exchange) -> None:
    await e.completion({**completion(), "choices": []})


@fault
async def nothing_said(e: Exchange) -> None:
    await e.completion(completion(None))


@fault
async def arguments_not_json(e: Exchange) -> None:
    await e.completion(completion(None, finish="tool_calls", tool_calls=[call(arguments='{"a": 1,, oops')]))


@fault
async def odd_call_ids(e: Exchange) -> None:
    pair = e.chance.choice(
        [
            [call("add", call_id=None), call("mul", call_id=None)],
            [call("add", call_id="same"), call("mul", call_id="same")],
            [call("add", call_id="c1", index=1), call("mul", call_id="c2", index=5)],
        ]
    )
    await e.completion(completion(None, finish="tool_calls", tool_calls=pair))


@fault
async def length_in_call(e: Exchange) -> None:
    await e.completion(
        completion(None, finish="length", tool_calls=[call(arguments='{"path": "a.txt", "text": "Once up')])
    )


@fault
async def gzip_bomb(e: Exchange) -> None:
    await e.whole(BOMB, Content_Encoding="gzip")


BOMB = gzip.compress(bytes(20_000_000))


@fault
async def endless_stream(e: Exchange) -> None:
    await e.begin_stream()
    pause = e.chance.choice([0.0, 0.02])
    for i in count():
        await e.chunk(event({"choices": [{"index": 0, "delta": {"content": f"and {i} " * 50}}]}))
        await asyncio.sleep(pause)


@fault
async def redirect(e: Exchange) -> None:
    await e.whole(b"", e.chance.choice([301, 302, 307, 308]), Location="http://127.0.0.1:9/elsewhere")


@fault
async def wrong_logprobs(e: Exchange) -> None:
    answer = completion(f"you said: {e.said}")
    choice = answer["choices"][0]
    choice["token_ids"] = [1, 2, 3, 4, 5]
    logprobs = e.chance.choice([[-0.5, -0.25], [-0.5, float("nan"), -0.1, -0.2, -0.3]])
    choice["logprobs"] = {"content": [{"token": "x", "logprob": value} for value in logprobs]}
    await e.completion({**answer, "prompt_token_ids": list(range(7))})


@fault
async def wrong_usage(e: Exchange) -> None:
    answer = completion(f"you said: {e.said}")
    answer["usage"] = e.chance.choice(
        [None, {"prompt_tokens": 7, "completion_tokens": -5}, {"prompt_tokens": 10**30, "completion_tokens": 1}]
    )
    await e.completion(answer)


assert len(FAULTS) == 34
