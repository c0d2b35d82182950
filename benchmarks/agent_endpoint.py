"""An endpoint that plays the model of a small agent: two or three `read_file` calls, then an answer.

    python benchmarks/agent_endpoint.py --latency 1.0      prints its port; ends when its input closes

It speaks just enough HTTP over a raw socket to cost little beside the client that is measured, and streams when asked.
How many tool turns a prompt gets is decided by the length of its text, so that every client gets the same.
"""

import argparse
import asyncio
import re
import sys

from msgspec.json import decode, encode

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
USAGE = {"prompt_tokens": 900, "completion_tokens": 30, "total_tokens": 930}


def reply(request: dict) -> dict:
    """The next message of the agent."""
    messages = request["messages"]
    asked = next(m["content"] for m in messages if m["role"] == "user")
    done = sum(m["role"] == "tool" for m in messages)
    reasoning = f"Step {done + 1} of what was asked."
    if done >= 2 + len(asked) % 2:
        return {"role": "assistant", "content": f"It says: {messages[-1]['content'][:40]}", "reasoning": reasoning}
    function = {"name": "read_file", "arguments": '{"path": "notes.txt"}'}
    call = {"id": f"call_{done}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "reasoning": reasoning, "tool_calls": [call]}


def completion(request: dict) -> bytes:
    """A whole answer."""
    message = reply(request)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE}
    return _response(encode(body), b"application/json")


def stream(request: dict) -> bytes:
    """The same as server-sent events, for clients that always stream."""
    message = reply(request)
    calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls") or [])]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    base = {"id": "x", "object": "chat.completion.chunk", "model": "m"}
    first = {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    finish = "tool_calls" if calls else "stop"
    last = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": USAGE}
    events = b"".join(b"data: " + encode(one) + b"\n\n" for one in (first, last))
    return _response(events + b"data: [DONE]\n\n", b"text/event-stream")


def _response(body: bytes, kind: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nContent-Length: " + str(len(body)).encode()
    return head + b"\r\n\r\n" + body


def _answer(head: bytes, body: bytes) -> bytes:
    if b"/chat/completions" not in head.split(b"\r\n", 1)[0]:
        return _response(b'{"object": "list", "data": [{"id": "m"}]}', b"application/json")
    request = decode(body)
    return stream(request) if request.get("stream") else completion(request)


class Connection(asyncio.Protocol):
    """One client, which asks its next question when it has the answer to the last."""

    def __init__(self, latency: float) -> None:
        self.latency, self.came = latency, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.came += data
        head, end, rest = self.came.partition(b"\r\n\r\n")
        size = LENGTH.search(head)
        length = int(size[1]) if size else 0
        if not end or len(rest) < length:
            return
        self.came = rest[length:]
        answer = _answer(head, rest[:length] or b"{}")
        if self.latency:
            asyncio.get_running_loop().call_later(self.latency, self.transport.write, answer)
        else:
            self.transport.write(answer)


async def serve(latency: float) -> None:
    """Answer on a free port of loopback until standard input closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(latency), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0)
    asyncio.run(serve(parser.parse_args().latency))
