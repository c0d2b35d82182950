"""Counting by pieces: text is mostly made of words that were counted before, and a dict is faster than a tokenizer.

A tokenizer that parts words before it looks for tokens (byte-level BPE: GPT, Llama 3, Qwen, DeepSeek, SmolLM, …) gives
the same tokens for a text and for its pieces, if the text is cut only where it parts words anyway. Those of today all
do before a single space between two visible characters, and after a letter before a line break or punctuation (but
for the apostrophe and its like):

    "def run(a, b):\\n    return a"   →   "def" · " run" · "(a" · "," · " b" · "):\\n    return" · " a"

`parts_words` decides whether a tokenizer is of that kind: by its parts, and by trying some thousand pairs of
characters. Any other is asked as it is. The counts are the tokenizer's own, those of each piece asked for once.
`tests/compress/test_pieces.py` compares both ways on any text.
"""

import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import msgspec

_PUNCTUATION = r"""!"#$%&()*+,\-./:;<=>?@\[\\\]^{|}~"""
_REST = rf"(?:[^\s{_PUNCTUATION}]++|(?<![A-Za-z])[{_PUNCTUATION}]++)*"  # `*+` would do, but Python 3.11.2 gets it wrong
_PIECE = re.compile(
    rf" ?[A-Za-z]++(?=[{_PUNCTUATION}\n]| \S)"  # most pieces are plain words, and found soonest
    rf"|(?: ?\S|\s+){_REST}(?:(?!(?<=[A-Za-z])\n)(?:\s{{2,}}|[^\S ]){_REST})*"
)
_LOCAL = {"ByteLevel", "Split", "Digits"}
"""Ways to part words that look at nothing but the characters around."""
_PROBES = "aZéßñ中ひ한אعк1٣²½.,;:!?()[]{}<>|/\\_-#$%&*+=~^@'\"`’…—€🙂\u0301\u200d"
_AFTER_LETTERS = '\n!"#$%&()*+,-./:;<=>?@[\\]^{|}~'
_MOST_PIECES = 50_000
_MOST_CHARS = 2_000_000

CountAll = Callable[[Sequence[str]], list[int]]


class Pieces:
    """Counts texts by their pieces, and remembers those met lately."""

    def __init__(self, count_all: CountAll, control: Sequence[str] = ()) -> None:
        """`control`: the texts of control tokens, which the tokenizer finds before it parts words."""
        self._count_all = count_all
        longest_first = sorted(control, key=len, reverse=True)
        self._control = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if control else None
        self._known: dict[str, int] = {}
        self._before: dict[str, int] = {}
        """What was known when there was too much of it; a piece that is met again comes back."""
        self._chars = 0

    def count(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text."""
        cut = [self._cut(text) for text in texts]
        known, before = self._known, self._before  # other threads may put new ones in their place meanwhile
        fresh = set[str]().union(*cut).difference(known)
        again = {piece: before[piece] for piece in fresh if piece in before}
        unknown = [piece for piece in fresh if piece not in again]
        known.update(again)
        known.update(zip(unknown, self._count_all(unknown), strict=True))
        found = [sum(map(known.__getitem__, pieces)) for pieces in cut]
        self._forget(sum(map(len, fresh)))
        return found

    def _cut(self, text: str) -> list[str]:
        parts = self._control.split(text) if self._control else [text]
        found: list[str] = []
        for i, part in enumerate(parts):  # text and control tokens in turns
            found += [part] if i % 2 else _PIECE.findall(part)
        return found

    def _forget(self, chars: int) -> None:
        self._chars += chars
        if len(self._known) > _MOST_PIECES or self._chars > _MOST_CHARS:
            self._known, self._before, self._chars = {}, self._known, 0


def parts_words(tokenizer: Any) -> bool:
    """Whether a text has the same tokens as its pieces."""
    plain_model = type(tokenizer.model).__name__ == "BPE" and not tokenizer.model.dropout
    normalizer = type(tokenizer.normalizer).__name__
    return (
        plain_model
        and normalizer in ("NoneType", "NFC")
        and tokenizer.pre_tokenizer is not None
        and _is_local(msgspec.json.decode(tokenizer.pre_tokenizer.__getstate__()))
        and not any(token.lstrip or token.rstrip or token.single_word for token in control_tokens(tokenizer))
        and all(_parts(tokenizer.pre_tokenizer, f"x{a}", f" {b}x") for a, b in product(_PROBES, repeat=2))
        and all(_parts(tokenizer.pre_tokenizer, f"x{a}", b + c) for a, b, c in product("az", _AFTER_LETTERS, _PROBES))
    )


def control_tokens(tokenizer: Any) -> list[Any]:
    """The tokens that a tokenizer finds in a text before anything else."""
    return list(tokenizer.get_added_tokens_decoder().values())


def _is_local(parts: dict[str, Any]) -> bool:
    if parts["type"] == "Sequence":
        return all(map(_is_local, parts["pretokenizers"]))
    return parts["type"] in _LOCAL and not parts.get("add_prefix_space", False)


def _parts(pre_tokenizer: Any, before: str, after: str) -> bool:
    """Whether a word ends between the two."""
    return len(before) in {end for _, (_, end) in pre_tokenizer.pre_tokenize_str(before + after)}
