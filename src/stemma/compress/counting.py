"""How many tokens a conversation has: what counts them, and how a template is counted.

A counter is one of

    tokenizer.json      by `tokenizers`, in batches on all cores; a path, its folder, or a hub id in the local cache;
                        words that were counted before are looked up (`pieces`)
    a GGUF              by the llama.cpp in this process
    an endpoint         by its `/tokenize` (llama.cpp, vLLM, SGLang)
    estimate            four UTF-8 bytes a token; says so in the report

No tokenizer is downloaded and no code of one is run. Where a chat template is known it is rendered (sandboxed) around
holes, and what stands between the holes is counted with the turn before it: templates write the same around every text.

    <|im_start|>user\\n ▢ <|im_end|>\\n<|im_start|>assistant\\n ▢ <|im_end|>\\n      → 2 frames, each counted once

Where a template refuses an order of roles, each turn gets the largest frame that its role has.
`tests/compress/test_counting.py` proves it.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from stemma.compress.pieces import CountAll, Pieces, control_tokens, parts_words
from stemma.formats.chat_template import compile_template

ESTIMATE = "estimate"
_BYTES_A_TOKEN = 4
_HOLE = "\ue000{}\ue001"
"""Stands for a turn's text in the template; private characters that no template has."""
_API_ROLES = {"human": "user", "gpt": "assistant"}
_USUAL = (("system", "human", "gpt"), ("human", "gpt"), ("human", "gpt", "tool", "gpt"))
_BATCH_CHARS, _BATCH_TEXTS = 1 << 17, 1 << 11
"""How much is encoded at once: enough for all cores, and the tokens of no more are in memory."""
_FEW = 1 << 10
"""Fewer characters than this are encoded before all cores would have begun."""
_AT_ONCE = 1 << 14
"""Fewer characters than this are counted before a thread would have begun."""

Render = Callable[[list[dict[str, str]]], str]


class Counter(Protocol):
    """Counts tokens."""

    name: str

    async def count(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text."""
        ...

    async def frames(self, roles: Sequence[str]) -> list[int]:
        """The tokens that the chat template puts around turns of these roles; zeros if there is none."""
        ...

    async def close(self) -> None:
        """Let go of connections and memory."""
        ...


class Framed:
    """A counter's template, by the counter itself."""

    def __init__(self, template: str | None = None, special: dict[str, str] | None = None) -> None:
        self._render = renderer(template, special or {}) if template else None
        self._known: dict[str, int] = {"": 0}
        self._widest: dict[str, int] = {}
        """The largest frame of each role."""

    async def count(self, texts: Sequence[str]) -> list[int]:
        raise NotImplementedError

    async def frames(self, roles: Sequence[str]) -> list[int]:
        if self._render is None or not roles:
            return [0] * len(roles)
        if not self._widest:
            for usual in _USUAL:
                await self._frames(self._render, usual)
        found = await self._frames(self._render, tuple(roles))
        if found is None:
            widest = max(self._widest.values(), default=0)
            return [self._widest.get(role, widest) for role in roles]
        return found

    async def _frames(self, render: Render, roles: tuple[str, ...]) -> list[int] | None:
        texts = frame_texts(render, roles)
        if texts is None:
            return None
        fresh = list({text for text in texts if text not in self._known})
        self._known.update(zip(fresh, await self.count(fresh), strict=True))
        sizes = [self._known[text] for text in texts]
        for role, size in zip(roles, sizes, strict=True):
            self._widest[role] = max(size, self._widest.get(role, 0))
        return sizes

    async def close(self) -> None:
        """Nothing to let go of."""


class Estimate(Framed):
    """Four bytes a token."""

    name = ESTIMATE

    async def count(self, texts: Sequence[str]) -> list[int]:
        return [-(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_A_TOKEN) for text in texts]


class FileCounter(Framed):
    """A `tokenizer.json`."""

    def __init__(
        self, tokenizer: Any, name: str, template: str | None = None, special: dict[str, str] | None = None
    ) -> None:
        super().__init__(template, special)
        self.name, self._tokenizer = name, tokenizer
        self._count: CountAll = self._encode
        if parts_words(tokenizer):
            self._count = Pieces(self._encode, [token.content for token in control_tokens(tokenizer)]).count

    async def count(self, texts: Sequence[str]) -> list[int]:
        if sum(map(len, texts)) < _AT_ONCE:
            return self._count(texts)
        return await asyncio.to_thread(self._count, texts)

    def _encode(self, texts: Sequence[str]) -> list[int]:
        if sum(map(len, texts)) < _FEW:
            return [len(self._tokenizer.encode(text, add_special_tokens=False)) for text in _clean(texts)]
        found: list[int] = []
        for batch in batches(_clean(texts)):
            # len() of an encoding, not of its ids: they would be copied into a Python list first.
            found += map(len, self._tokenizer.encode_batch_fast(batch, add_special_tokens=False))
        return found


def _clean(texts: Sequence[str]) -> list[str]:
    """The texts with lone surrogates, which no tokenizer takes, replaced."""
    return [text if text.isascii() else text.encode("utf-8", "replace").decode() for text in texts]


def batches(texts: Sequence[str]) -> list[list[str]]:
    """The texts in order, in lists of some size."""
    made: list[list[str]] = [[]]
    size = 0
    for text in texts:
        if size >= _BATCH_CHARS or len(made[-1]) >= _BATCH_TEXTS:
            made.append([])
            size = 0
        made[-1].append(text)
        size += len(text)
    return made


# ── templates ────────────────────────────────────────────────────────────────────────────────────────────────────


def renderer(template: str, special: dict[str, str]) -> Render:
    """A chat template as a function of messages."""
    compiled = compile_template(template)

    def render(messages: list[dict[str, str]]) -> str:
        return str(compiled.render(messages=messages, add_generation_prompt=False, tools=None, **special))

    return render


@lru_cache(maxsize=4096)
def frame_texts(render: Render, roles: tuple[str, ...]) -> tuple[str, ...] | None:
    """What the template writes for each turn beside its text; None if it refuses these roles or moves their texts."""
    messages = [{"role": _API_ROLES.get(role, role), "content": _HOLE.format(i)} for i, role in enumerate(roles)]
    try:
        rest = render(messages)
    except Exception:  # noqa: BLE001 - a template is a program of a stranger's: whatever it raises, it refuses
        return None
    frames = []
    for i in range(len(roles)):
        before, hole, rest = rest.partition(_HOLE.format(i))
        if not hole:
            return None
        frames.append(before)
    frames[-1] += rest
    return tuple(frames)
