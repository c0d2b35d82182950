"""What is sent: the line, and what only this call sees.

An ephemeral prompt is sent behind the system message, prefill messages right after it; neither is part of the line,
both are noted in the call, and no export has them. Whether earlier reasoning goes along is the model's own matter: an
endpoint gets none unless it asks, a model that speaks the hermes protocol sees its thoughts as it sampled them.
`tests/agent/test_context.py` proves it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stemma.core.call import Call
from stemma.core.graph import MessageGraph
from stemma.models.protocol import Request


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is told beside the conversation."""

    ephemeral: str = ""
    prefill: Sequence[Mapping[str, Any]] = ()

    def notes(self) -> dict[str, Any]:
        """What a call made under it must say."""
        found: dict[str, Any] = {"ephemeral": self.ephemeral, "prefill": [dict(m) for m in self.prefill]}
        return {key: value for key, value in found.items() if value}


def request_for(
    graph: MessageGraph, guidance: Guidance, tools: list[dict[str, Any]] | None, params: Mapping[str, Any]
) -> Request:
    """The next question to the model."""
    messages = with_guidance(graph.messages(), guidance)
    return Request(messages=messages, tools=tools or None, params=dict(params))


def with_guidance(messages: list[dict[str, Any]], guidance: Guidance) -> list[dict[str, Any]]:
    """The messages as the model is to see them."""
    system = messages[:1] if messages and messages[0].get("role") == "system" else []
    rest = messages[len(system) :]
    if guidance.ephemeral:
        first = system[0] if system else {"role": "system"}
        system = [{**first, "content": _with_text(first.get("content"), guidance.ephemeral)}]
    return [*system, *(dict(m) for m in guidance.prefill), *rest]


def _with_text(content: Any, text: str) -> Any:
    """Content with a text behind it: one more part, if it is in parts."""
    if isinstance(content, list):
        return [*content, {"type": "text", "text": text}]
    return f"{content}\n\n{text}" if content else text


def noted(call: Call, notes: Mapping[str, Any]) -> Call:
    """The call, saying under which guidance and behind which fence it was made."""
    return msgspec.structs.replace(call, extra={**call.extra, **notes})
