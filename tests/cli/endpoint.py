"""A loopback endpoint for a command in another process: it answers from a script, then repeats what it is told."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from completions import call, completion, event
from faultserver import Exchange, FaultServer

Line = str | dict[str, Any] | Callable[[Exchange], Awaitable[None]]
"""A text, a whole completion, or a function that answers as it likes."""


def tool_call(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    """A reply that asks for a tool."""
    return completion(None, finish="tool_calls", tool_calls=[call(name, arguments, call_id)])


class Gate:
    """An answer that begins with `first` and ends with `rest` only when the test opens it."""

    def __init__(self, first: str = "", rest: str = "") -> None:
        self.begun, self._open = threading.Event(), threading.Event()
        self._first, self._rest = first, rest

    def open(self) -> None:
        self._open.set()

    async def __call__(self, exchange: Exchange) -> None:
        if self._first:
            await exchange.begin_stream()
            await exchange.chunk(_delta(self._first))
        self.begun.set()
        while not self._open.is_set():
            await asyncio.sleep(0.01)
        if self._first:
            await exchange.chunk(_delta(self._rest, finish="stop") + b"data: [DONE]\n\n")
            await exchange.send(b"0\r\n\r\n")
        else:
            await exchange.completion(completion(self._rest))


def _delta(text: str, finish: str | None = None) -> bytes:
    return event(
        {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
    )


@contextmanager
def endpoint(*script: Line) -> Iterator[FaultServer]:
    """The server, in a thread of its own, until the block ends."""
    server, ready, done = FaultServer([_answer(line) for line in script]), threading.Event(), threading.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield server
    finally:
        done.set()
        thread.join()


def _answer(line: Line) -> Callable[[Exchange], Awaitable[None]]:
    if callable(line):
        return line

    async def answer(exchange: Exchange) -> None:
        await exchange.completion(completion(line) if isinstance(line, str) else line)

    return answer
