"""An endpoint that plays the model of a small agent: two or three `read_file` calls, then an answer.

    python benchmarks/agent_endpoint.py --latency 1.0      prints its port; ends when its input closes

It speaks just enough HTTP over a raw socket to cost little beside the client that is measured, and streams when asked.
How many tool turns a prompt gets is decided by the length of its text, so that every client gets the same.
"""

import argparse
import asyncio
import json
import re
import sys

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
    function = {"name": "read_file", "arguments": json.dumps({"path": "notes.txt"})}
    call = {"id": f"call_{done}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "reasoning": reasoning, "tool_calls": [call]}


def completion(request: dict) -> bytes:
    """A whole answer."""
    message = reply(request)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE}
    return _response(json.dumps(body).encode(), b"application/json")


def stream(request: dict) -> bytes:
    """The same as server-sent events, for clients that always stream."""
    message = reply(request)
    calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls") or [])]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    base = {"id": "x", "object": "chat.completion.chunk", "model": "m"}
    first = {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    finish = "tool_calls" if calls else "stop"
    last = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": USAGE}
    events = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in (first, last))
    return _response(events + b"data: [DONE]\n\n", b"text/event-stream")


def _response(body: bytes, kind: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nContent-Length: " + str(len(body)).encode()
    return head + b"\r\n\r\n" + body


def _answer(head: bytes, body: bytes) -> bytes:
    if b"/chat/completions" not in head.split(b"\r\n", 1)[0]:
        return _response(b'{"object": "list", "data": [{"id": "m"}]}', b"application/json")
    request = json.loads(body)
    return stream(request) if request.get("stream") else completion(request)


async def serve(latency: float) -> None:
    """Answer on a free port of loopback until standard input closes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = LENGTH.search(head)
                body = await reader.readexactly(int(size[1])) if size else b"{}"
                if latency:
                    await asyncio.sleep(latency)
                writer.write(_answer(head, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=4096, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0)
    asyncio.run(serve(parser.parse_args().latency))
