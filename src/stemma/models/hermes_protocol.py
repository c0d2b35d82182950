"""The second tool protocol: tools are told in the system prompt, and calls are read from the text.

What the model sees is the Hermes trajectory itself, turn by turn, so the exported row is the prompt it had; and a model
without tool support can use tools. `tests/models/test_hermes_protocol.py` proves that reading inverts writing.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from stemma.core.message import as_sent
from stemma.formats.api import normalise_reply
from stemma.formats.from_hermes import from_trajectory
from stemma.formats.hermes import to_trajectory

_ROLES = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}


def as_text_messages(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, str]]:
    """The conversation as plain texts: the Hermes prompt, and the conversation's own system message below it."""
    turns = to_trajectory(map(as_sent, messages), tools)
    own = [str(m.get("content") or "") for m in messages if m.get("role") == "system"]
    if own:
        head = turns[0]["value"] if tools else ""
        turns[0] = {"from": "system", "value": "\n\n".join([head, *own] if head else own)}
    elif not tools:
        turns = turns[1:]
    return [{"role": _ROLES[turn["from"]], "content": turn["value"]} for turn in turns]


def read_reply(text: str, nonce: str) -> dict[str, Any]:
    """The assistant message that `text` is; calls get ids made of `nonce`, which must be new in the conversation.

    A reply that was cut is read as far as it goes: a thought that was not closed is a thought, half a call is text.
    """
    message = normalise_reply(from_trajectory([{"from": "gpt", "value": text}], "hermes")[0])
    for number, call in enumerate(message.get("tool_calls") or ()):
        call["id"] = f"call_{nonce}_{number}"
    return message


def fresh_nonce(messages: Sequence[Mapping[str, Any]]) -> str:
    """A nonce that no call in `messages` has; conversations that are alike get the same."""
    taken = {call.get("id") for message in messages for call in message.get("tool_calls") or ()}
    return next(str(n) for n in count(len(messages)) if f"call_{n}_0" not in taken)
