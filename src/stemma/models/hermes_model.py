"""Tools for any model that talks: the hermes tool protocol over another model.

Tools are told in the system prompt and calls are read from the text (`hermes_protocol`), so the endpoint sees neither
`tools` nor `tool_calls`. The call says which tools were told, and keeps the text as it was sampled (`extra["raw"]`)
where the message does not give it back. While a reply comes, thoughts and calls in it are shown as what they are.
`tests/models/test_hermes_model.py` proves it against a real endpoint.

A tool's answer goes out as the user's turn: the role `tool` wants ids that this protocol does not have, and the
templates of Hermes and Qwen would wrap `<tool_response>` around it once more.
"""

import msgspec

from stemma.models.hermes_protocol import as_text_messages, fresh_nonce, read_reply
from stemma.models.local_pieces import Pieces
from stemma.models.prices import tells_cost
from stemma.models.protocol import Delta, Model, OnDelta, Reply, Request


class HermesModel:
    """A model whose tool calls are text."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name, self.context_window = model.name, model.context_window
        self.params = getattr(model, "params", {})
        self.prices = getattr(model, "prices", None)
        self.tells_cost = tells_cost(model)

    async def reply(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        shown = _Shown(on_delta) if on_delta is not None else None
        reply = _read(await self.model.reply(_told(request), shown), request)
        if shown is not None:
            shown.end()
        return reply

    async def samples(self, request: Request, n: int) -> list[Reply]:
        return [_read(reply, request) for reply in await self.model.samples(_told(request), n)]

    async def close(self) -> None:
        await self.model.close()


class _Shown:
    """Tells the parts of the text apart while it comes; a reply that comes anew is told from its beginning."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta, self._pieces = on_delta, Pieces(on_delta)

    def __call__(self, delta: Delta) -> None:
        if delta.kind == "text":
            self._pieces.feed(delta.text)
            return
        if delta.kind == "again":
            self._pieces = Pieces(self._on_delta)
        self._on_delta(delta)

    def end(self) -> None:
        self._pieces.end()


def _told(request: Request) -> Request:
    texts = as_text_messages(request.messages, request.tools)
    messages = [{**text, "role": "user"} if text["role"] == "tool" else text for text in texts]
    return Request(messages=messages, params=request.params)


def _read(reply: Reply, request: Request) -> Reply:
    """The reply with its calls read; reasoning that came in a field of its own stays."""
    came, call = reply.message, reply.call
    raw = call.extra.get("raw", came.get("content") or "")
    message = read_reply(raw, fresh_nonce(request.messages))
    if came.get("reasoning") and not message.get("reasoning"):
        message["reasoning"] = came["reasoning"]
    finish = "tool_calls" if message.get("tool_calls") and call.finish_reason != "length" else call.finish_reason
    kept = {"raw": raw} if raw != as_text_messages([message], None)[-1]["content"] else {}
    extra = {key: value for key, value in call.extra.items() if key != "raw"} | kept | {"protocol": "hermes"}
    return Reply(
        message=message,
        call=msgspec.structs.replace(call, tools=request.tools, finish_reason=finish, extra=extra),
    )
