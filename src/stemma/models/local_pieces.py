"""What a person sees while a reply comes: the thought, the answer and the calls, each told as what it is.

    >>> seen = []
    >>> pieces = Pieces(seen.append)
    >>> for text in ("<think>\\nIs it so?\\n</thi", "nk>\\nYes."):
    ...     pieces.feed(text)
    >>> seen
    [Delta(kind='reasoning', text='Is it so?'), Delta(kind='text', text='Yes.')]

However the text is cut, each kind's pieces together are the same. `tests/models/test_local_pieces.py` proves it.
"""

import re
from typing import Literal

from stemma.models.protocol import Delta, OnDelta

Kind = Literal["text", "reasoning", "tool"]

_AFTER: dict[str, Kind] = {
    "<think>\n": "reasoning",
    "\n</think>\n": "text",
    "<tool_call>\n": "tool",
    "\n</tool_call>": "text",
}
"""The tags that part a reply, and what comes after each."""

_TAG = re.compile("|".join(map(re.escape, _AFTER)))
_LONGEST = max(map(len, _AFTER))


class Pieces:
    """Tells the parts of one reply apart as its text comes."""

    def __init__(self, tell: OnDelta | None) -> None:
        self._tell = tell
        self._kind: Kind = "text"
        self._held = ""
        """The end of what came, which may be the beginning of a tag."""

    def feed(self, text: str) -> None:
        """Tell what can be told now that `text` has come."""
        rest = self._held + text
        while tag := _TAG.search(rest):
            self._show(rest[: tag.start()])
            self._kind, rest = _AFTER[tag[0]], rest[tag.end() :]
        cut = len(rest) - _begun(rest)
        self._show(rest[:cut])
        self._held = rest[cut:]

    def end(self) -> None:
        """Tell what was held back, for no more comes."""
        self._show(self._held)
        self._held = ""

    def _show(self, text: str) -> None:
        if text and self._tell is not None:
            self._tell(Delta(self._kind, text))


def _begun(text: str) -> int:
    """How many characters at the end of `text` may begin a tag."""
    longest = min(len(text), _LONGEST - 1)
    return next((n for n in range(longest, 0, -1) if any(tag.startswith(text[-n:]) for tag in _AFTER)), 0)
