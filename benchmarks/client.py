"""The figures of the client: what it costs over bare aiohttp, and whether streaming stays linear.

    python benchmarks/client.py             everything, in about a minute
    python benchmarks/client.py --quick     a quarter of the requests
    python benchmarks/client.py --json      for programs

The endpoint is a process of its own on 127.0.0.1 which does next to nothing: it waits 50 ms and sends bytes that were
made beforehand. Both clients ask it the same (30 kB out, 8 kB back) in turns, with 256 requests in flight, so that a
busy machine disturbs both alike; the bound is on the processor's time, and the wall's is told beside it. The bare
client is what one writes without us: one session, `post(json=…)`, `await response.json()`. Exit code 1: a bound was
missed.
"""

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

import aiohttp

from measure import Figure, Values, report, timed
from stemma.models.openai_api import OpenAIModel
from stemma.models.protocol import Request

IN_FLIGHT = 256
WAIT = 0.05
LONG, SHORT = 200_000, 20_000
DELTA = 4
MESSAGES = [{"role": "user", "content": "Tell me more about it. " * 65}] * 20
REPLY = "The quick brown fox jumps over the lazy dog. " * 178

FIGURES = [
    Figure("256 in flight, processor time: ours / bare aiohttp", "overhead.cpu", "×", "≤", 1.3),
    Figure("  wall time: ours / bare aiohttp", "overhead.wall", "×"),
    Figure("  bare aiohttp", "overhead.bare_rate", "/s"),
    Figure("  ours", "overhead.our_rate", "/s"),
    Figure("  ours, processor time a request", "overhead.our_cpu_ms", "ms"),
    Figure("streaming, deltas of 4 characters: 200 kB / 20 kB", "streaming.growth", "×", "≤", 12),
    Figure("  200 kB, processor time", "streaming.long_ms", "ms"),
    Figure("  20 kB, processor time", "streaming.short_ms", "ms"),
    Figure("  a delta", "streaming.delta_us", "µs"),
]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.serve:
        asyncio.run(serve())
        return 0
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base_url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        try:
            measured = asyncio.run(measure(base_url, scale=4 if wanted.quick else 1))
        finally:
            server.terminate()
    return 0 if report(FIGURES, measured, as_json=wanted.json) else 1


async def measure(base_url: str, scale: int) -> Values:
    """All figures."""
    return {**await overhead(base_url, 16 // scale), **await streaming(base_url, 40 // scale)}


async def overhead(base_url: str, rounds: int) -> Values:
    """Both clients in turns, each round with as many requests as are in flight, four times over."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        OpenAIModel("m", base_url, params={"temperature": 0.7}) as model,
    ):
        bare, ours = bare_client(session, base_url), our_client(model)
        await at_once(bare, 1), await at_once(ours, 1)  # connections are made, modules are warm
        pairs = [(await at_once(bare, 4), await at_once(ours, 4)) for _ in range(rounds)]
    requests = 4 * IN_FLIGHT
    return {
        "overhead.cpu": median(our.cpu / their.cpu for their, our in pairs),
        "overhead.wall": median(our.wall / their.wall for their, our in pairs),
        "overhead.bare_rate": requests / median(their.wall for their, _ in pairs),
        "overhead.our_rate": requests / median(our.wall for _, our in pairs),
        "overhead.our_cpu_ms": median(our.cpu for _, our in pairs) / requests * 1e3,
    }


Ask = Callable[[], Awaitable[str]]


def bare_client(session: aiohttp.ClientSession, base_url: str) -> Ask:
    async def ask() -> str:
        body = {"model": "m", "messages": MESSAGES, "temperature": 0.7}
        async with session.post(f"{base_url}/chat/completions", json=body) as response:
            answer = await response.json()
            return answer["choices"][0]["message"]["content"]

    return ask


def our_client(model: OpenAIModel) -> Ask:
    request = Request(messages=MESSAGES)

    async def ask() -> str:
        return (await model.reply(request)).message["content"]

    return ask


class Spent:
    """Seconds of the wall and of the processor."""

    def __init__(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = wall, cpu


async def at_once(ask: Ask, times: int) -> Spent:
    async def one_after_another() -> None:
        for _ in range(times):
            assert len(await ask()) == len(REPLY)

    gc.collect()
    with timed() as watch:
        await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    return Spent(watch.seconds, watch.busy)


async def streaming(base_url: str, rounds: int) -> Values:
    """One reply in small deltas, long and short in turns."""
    async with OpenAIModel("m", base_url) as model:
        await streamed(model, SHORT)
        pairs = [(await streamed(model, SHORT), await streamed(model, LONG)) for _ in range(rounds)]
    short, long = median(short for short, _ in pairs), median(long for _, long in pairs)
    return {
        "streaming.growth": long / short,
        "streaming.long_ms": long * 1e3,
        "streaming.short_ms": short * 1e3,
        "streaming.delta_us": long / (LONG // DELTA) * 1e6,
    }


async def streamed(model: OpenAIModel, size: int) -> float:
    shown = 0

    def watch(_: object) -> None:
        nonlocal shown
        shown += 1

    gc.collect()
    with timed() as watch_time:
        request = Request(messages=[{"role": "user", "content": "go"}], params={"max_tokens": size})
        reply = await model.reply(request, watch)
    assert len(reply.message["content"]) == size
    assert shown == size // DELTA
    return watch_time.busy


async def serve() -> None:
    """The endpoint: prints its port, and answers until it is stopped."""
    answers = {size: http("text/event-stream", events(size)) for size in (LONG, SHORT)}
    message = {"role": "assistant", "content": REPLY}
    usage = {"prompt_tokens": 6500, "completion_tokens": 1800, "total_tokens": 8300}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    whole = {"id": "c", "object": "chat.completion", "model": "m", "choices": choices, "usage": usage}
    answers[0] = http("application/json", json.dumps(whole).encode())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await next_head(reader):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            size = json.loads(body).get("max_tokens", 0) if length < 1_000 else 0
            await asyncio.sleep(0 if size else WAIT)
            writer.write(answers[size])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def next_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""  # the client has gone


def http(content_type: str, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def events(size: int) -> bytes:
    text = (REPLY * (size // len(REPLY) + 1))[:size]
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": int(time.time()), "model": "m"}
    pieces = [text[at : at + DELTA] for at in range(0, size, DELTA)]
    deltas = [{"index": 0, "delta": {"content": piece}, "logprobs": None, "finish_reason": None} for piece in pieces]
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    lines = [f"data: {json.dumps({**chunk, 'choices': [one]})}\n\n" for one in [*deltas, last]]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


if __name__ == "__main__":
    sys.exit(main())
