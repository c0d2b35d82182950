"""A conversation as token ids, written so that no text can forge a turn and no reply is ever encoded anew.

The chat template is applied to messages whose text is a hole; what stands between the holes is the template's own and
is encoded with control tokens, everybody's text is encoded without. A reply that this process has sampled stands in
later prompts with the very ids that were sampled, so a later prompt extends the earlier one:

    <|im_start|>user⏎ [hole 0] <|im_end|>⏎<|im_start|>assistant⏎ [hole 1] <|im_end|>⏎…
      control tokens  "Hi!"      control tokens                    ids as sampled
"""

from collections import OrderedDict
from hashlib import sha256
from typing import Generic, TypeVar

from stemma.core.call import pack_ids
from stemma.models.errors import ModelError, Refused
from stemma.models.local_engine import Connection

_HOLE = "\ue000{}\ue001"
"""Stands for a message's text; private characters that no template has."""

_REMEMBERED = 4096
"""Texts and replies whose ids are kept; the oldest go first."""

TextMessages = list[dict[str, str]]
_Key = TypeVar("_Key")


class _Recent(Generic[_Key]):
    """The ids last used, by what they stand for."""

    def __init__(self) -> None:
        self._ids: OrderedDict[_Key, list[int]] = OrderedDict()

    def get(self, key: _Key) -> list[int] | None:
        if key in self._ids:
            self._ids.move_to_end(key)
        return self._ids.get(key)

    def put(self, key: _Key, ids: list[int]) -> None:
        self._ids[key] = ids
        if len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)


class PromptWriter:
    """Writes prompts for one model, and remembers what was sampled after them."""

    def __init__(self) -> None:
        self._encoded: _Recent[tuple[str, bool, bool]] = _Recent()
        self._sampled: _Recent[tuple[bytes, str]] = _Recent()

    async def ids(self, engine: Connection, messages: TextMessages) -> list[int]:
        """The prompt for the next reply."""
        *frames, last = await _frames(engine, messages)
        ids: list[int] = []
        for frame, message in zip(frames, messages, strict=True):
            ids += await self._encode(engine, frame, control=True, first=not ids)
            ids += await self._text_ids(engine, message, ids)
        return ids + await self._encode(engine, last, control=True, first=not ids)

    def remember(self, prompt: list[int], text: str, sampled: list[int]) -> None:
        """After `prompt` these ids were sampled, and `text` is how they stand in later conversations."""
        self._sampled.put((_digest(prompt), text), sampled)

    async def _text_ids(self, engine: Connection, message: dict[str, str], before: list[int]) -> list[int]:
        text = message["content"]
        known = self._sampled.get((_digest(before), text)) if message["role"] == "assistant" else None
        return known if known is not None else await self._encode(engine, text, control=False, first=False)

    async def _encode(self, engine: Connection, text: str, *, control: bool, first: bool) -> list[int]:
        """The ids of a text; the first of a prompt begin with what the model wants there, if anything."""
        key = (text, control, first)
        ids = self._encoded.get(key) if text else []
        if ids is None:
            said = await engine.post("/tokenize", {"content": text, "parse_special": control, "add_special": first})
            ids = said["tokens"]
            self._encoded.put(key, ids)
        return ids


async def _frames(engine: Connection, messages: TextMessages) -> list[str]:
    """What the template puts before, between and after the messages. One that knows no tools sees their results as
    the user's words."""
    try:
        return await _apply(engine, messages)
    except ModelError:
        if all(message["role"] != "tool" for message in messages):
            raise
    return await _apply(engine, [{**m, "role": "user"} if m["role"] == "tool" else m for m in messages])


async def _apply(engine: Connection, messages: TextMessages) -> list[str]:
    holes = [_HOLE.format(at) for at in range(len(messages))]
    emptied = [{**message, "content": hole} for message, hole in zip(messages, holes, strict=True)]
    rest: str = (await engine.post("/apply-template", {"messages": emptied}))["prompt"]
    frames = []
    for at, hole in enumerate(holes):
        frame, found, rest = rest.partition(hole)
        if not found:
            raise Refused(f"the model's chat template leaves out message {at}, of role {messages[at]['role']!r}")
        frames.append(frame)
    return [*frames, rest]


def _digest(ids: list[int]) -> bytes:
    return sha256(pack_ids(ids)).digest()
