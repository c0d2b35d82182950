"""A turn on the screen while it happens: thoughts dim, the answer plain, tool calls with their result and time.

What models and tools say is text, never control: `visible` spells out what could move the cursor. Nothing here imports
a library for colours, because one question and its answer should not wait for one. `tests/cli/test_chat_showing.py`
pins how it looks.
"""

import os
from typing import TextIO

from stemma.agent.facts import Asking, Compacted, Fact, Replied, Stopped, ToolRan, ToolStarted
from stemma.cli.brief import content_text, squeezed, value_text
from stemma.cli.screen import visible
from stemma.models.protocol import Delta

_CODES = {"dim": "2", "green": "32", "red": "31", "yellow": "33"}
_MOST = 100
"""Characters of arguments and results that are shown."""


class Shown:
    """Where a turn is shown: the answer on `out`, all else on `aside`; what has no place is not shown."""

    def __init__(self, out: TextIO | None, aside: TextIO | None) -> None:
        self._out, self._aside = out, aside
        self._streaming: str | None = None
        """The kind of words that stand on an unfinished line."""
        self._streamed = False
        """Whether the reply under way was shown while it came."""

    def delta(self, delta: Delta) -> None:
        """A piece of a reply."""
        if delta.kind == "again":
            self.note(f"the reply broke off ({delta.text}); it comes anew")
        elif delta.kind in ("text", "reasoning") and delta.text:
            self._say(delta.kind, delta.text)
            self._streamed = self._streamed or delta.kind == "text"

    def fact(self, fact: Fact, length: int) -> None:
        """A fact about a conversation that has so many messages now."""
        match fact:
            case Asking():
                self._streamed = False
            case Replied(reply):
                if not self._streamed and (said := content_text(reply.message.get("content"))):
                    self._say("text", said)
                self.end_line()
            case ToolStarted(_, name, arguments):
                self.note(f"→ {name} {_short(value_text(arguments))}", "yellow")
            case ToolRan(_, name, result, seconds):
                mark, style = ("✓", "green") if result.ok else ("✗", "red")
                self.note(f"{length - 1} {mark} {name} {seconds:.2f} s  {_short(result.text)}", style)
            case Compacted(before, after):
                self.note(f"the context was shortened from {before} messages to {after}; the longer line is kept")
            case Stopped(reason, detail) if not fact.completed:
                self.note(f"no answer: {reason}" + (f": {detail}" if detail else ""), "red")

    def note(self, text: str, style: str = "dim") -> None:
        """A line beside the conversation."""
        self.end_line()
        self._write(self._aside, painted(visible(text), style, self._aside) + "\n")

    def block(self, text: str) -> None:
        """Several lines beside the conversation."""
        self.end_line()
        self._write(self._aside, visible(text, block=True) + "\n")

    def end_line(self) -> None:
        """Begin a new line if words stand on this one."""
        if self._streaming is not None:
            self._write(self._out if self._streaming == "text" else self._aside, "\n")
            self._streaming = None

    def _say(self, kind: str, text: str) -> None:
        if self._streaming != kind:
            self.end_line()
            self._streaming = kind
        words = visible(text, block=True)
        if kind == "text":
            self._write(self._out, words)
        else:
            self._write(self._aside, painted(words, "dim", self._aside))

    @staticmethod
    def _write(stream: TextIO | None, text: str) -> None:
        if stream is not None:
            stream.write(text)
            stream.flush()


def painted(text: str, style: str, stream: TextIO | None) -> str:
    """`text` in a style, on terminals that have any."""
    plain = stream is None or not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def _short(text: str) -> str:
    line = squeezed(text, _MOST)
    return line if len(line) <= _MOST else line[: _MOST - 1] + "…"
