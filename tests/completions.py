"""Chat completions as endpoints send them, whole and as the events of a stream; for tests to build answers from."""

import json
from typing import Any


def completion(content: str | None = "hello", n: int = 1, finish: str = "stop", **fields: Any) -> dict[str, Any]:
    """A chat completion; `fields` go into its messages."""
    message = {"role": "assistant", "content": content, **fields}
    choices = [{"index": i, "message": dict(message), "finish_reason": finish} for i in range(n)]
    usage = {"prompt_tokens": 7, "completion_tokens": 5 * n, "total_tokens": 7 + 5 * n}
    return {"id": "cmpl-1", "object": "chat.completion", "model": "m", "choices": choices, "usage": usage}


def call(name: str = "add", arguments: str = '{"a": 1}', call_id: str | None = "c1", **fields: Any) -> dict[str, Any]:
    """A tool call."""
    made = {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}
    return made if call_id is None else {"id": call_id, **made}


def event(payload: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def events_of(payload: dict[str, Any], width: int = 3) -> list[bytes]:
    """A completion as the events that say the same, its text in pieces of `width` characters."""
    top = {key: value for key, value in payload.items() if key not in ("choices", "usage")}
    events = []
    for choice in payload["choices"]:
        at = {"index": choice["index"]}
        rest = {key: value for key, value in choice.items() if key not in ("message", "index")}
        deltas = [{**at, "delta": delta, "finish_reason": None} for delta in _deltas(choice["message"], width)]
        events += [event({**top, "choices": [one]}) for one in [*deltas, {**at, "delta": {}, **rest}]]
    if "usage" in payload:
        events.append(event({**top, "choices": [], "usage": payload["usage"]}))
    return [*events, b"data: [DONE]\n\n"]


def _deltas(message: dict[str, Any], width: int) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    for key, value in message.items():
        if key == "tool_calls":
            deltas += [
                {"tool_calls": [piece]} for i, call in enumerate(value) for piece in _call_pieces(call, i, width)
            ]
        elif isinstance(value, str) and key != "role":
            deltas += [{key: value[at : at + width]} for at in range(0, max(len(value), 1), width)]
        elif key != "role" and value is not None:
            deltas.append({key: value})
    return deltas


def _call_pieces(call: dict[str, Any], i: int, width: int) -> list[dict[str, Any]]:
    arguments = call["function"]["arguments"]
    index = call.get("index", i)
    first = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
    rest = [arguments[at : at + width] for at in range(0, len(arguments), width)]
    return [first, *({"index": index, "function": {"arguments": piece}} for piece in rest)]
