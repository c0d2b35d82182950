"""A model that answers from a script: the stand-in in tests, docs and demos.

    >>> import asyncio
    >>> from stemma.models.protocol import Request
    >>> model = ScriptedModel(["Hello.", {"content": "Bye.", "reasoning": "They leave."}])
    >>> asyncio.run(model.reply(Request(messages=[]))).message
    {'role': 'assistant', 'content': 'Hello.'}

A script is a list of replies (a text, or an assistant message), taken in order; or a function of the request, for
answers that depend on the context. An exception in the list, or raised by the function, is raised as the model's.
"""

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any

from stemma.core.call import Call
from stemma.models.errors import NoMoreReplies
from stemma.models.protocol import Delta, OnDelta, Reply, Request

Line = str | dict[str, Any] | Exception
Script = Iterable[Line] | Callable[[Request], Line | Awaitable[Line]]


class ScriptedModel:
    """Deterministic replies."""

    def __init__(self, script: Script, *, name: str = "scripted", context_window: int | None = None) -> None:
        self.name, self.context_window = name, context_window
        self.requests: list[Request] = []
        """Every question asked, in order."""
        self._lines = None if callable(script) else iter(script)
        self._function = script if callable(script) else None

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        self.requests.append(request)
        line = await self._next(request)
        if isinstance(line, Exception):
            raise line
        message = {"role": "assistant", "content": line} if isinstance(line, str) else {"role": "assistant", **line}
        if on_delta is not None and message.get("content"):
            on_delta(Delta("text", message["content"]))
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        call = Call(model=self.name, tools=request.tools, params=request.params, finish_reason=finish)
        return Reply(message=message, call=call)

    async def samples(self, request: Request, n: int) -> list[Reply]:
        return [await self.reply(request) for _ in range(n)]

    async def close(self) -> None:
        """Nothing to let go of."""

    async def _next(self, request: Request) -> Line:
        if self._function is not None:
            answer = self._function(request)
            return await answer if isawaitable(answer) else answer
        line = next(self._lines or iter(()), None)
        if line is None:
            raise NoMoreReplies(f"the script of {self.name!r} has ended after {len(self.requests) - 1} replies")
        return line
