"""What reaches the terminal, and in which form.

Text in a store was written by models, tools and strangers. `visible` spells out every character that could move the
cursor, recolour, reorder or hide what stands on the screen, and `Screen` puts all that it writes through it, so that
no command can forget to. JSON goes out in ASCII. Colours and widths are used on terminals only, and colours not
if NO_COLOR is set. `tests/cli/test_hostile_text.py` sends hostile text through every command.

Not covered: letters that merely look like others, and marks stacked high on one letter.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import typer

Piece = str | tuple[str, str]
"""A text, or a text and its style, such as `("tool", "yellow")`."""

PIPED_WIDTH = 120
"""Columns where there is no terminal: wide enough for one line of text, and the same on every machine."""

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufeff\uffa0"  # seen as nothing, or as a blank
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, separators, bidi
    "\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0d\ufff0-\ufffb\ufffe\uffff"  # surrogates, variants, no characters
    "\U00013430-\U00013455\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # more formatting; tags
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
    + "]"
)
_SPELT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, block: bool = False) -> str:
    r"""`text` with every character that is not plainly seen spelt out; a block keeps its newlines and tabs.

    >>> visible("a\x1b[31m\n")
    'a\\x1b[31m\\n'
    """
    return _HIDDEN.sub(_spell_in_block if block else _spell, text)


def _spell(found: re.Match[str]) -> str:
    char = found[0]
    if char in _SPELT:
        return _SPELT[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _spell_in_block(found: re.Match[str]) -> str:
    return found[0] if found[0] in "\n\t" else _spell(found)


def cut(text: str, width: int) -> str:
    """`text`, ended with `…` if it is wider than `width` columns."""
    from rich.cells import cell_len, set_cell_size

    if len(text) * 2 <= width or cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` with blanks up to `width` columns, behind it or before it."""
    from rich.cells import cell_len

    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


def width_of(pieces: Iterable[Piece]) -> int:
    """How many columns pieces take."""
    from rich.cells import cell_len

    return sum(cell_len(_text(piece)) for piece in pieces)


def as_json(value: Any) -> str:
    """JSON that no terminal trips over: ASCII only, and lone surrogates as they are in JSON."""
    return json.dumps(value, ensure_ascii=True, indent=2).replace("\x7f", "\\u007f")


class Screen:
    """Standard output, for one command."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self.colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.width = (os.get_terminal_size(sys.stdout.fileno()).columns if terminal else 0) or PIPED_WIDTH

    def line(self, *pieces: Piece) -> None:
        """One line."""
        self._write("".join(self._paint(visible(_text(piece)), piece) for piece in pieces).rstrip(" "))

    def block(self, text: str, indent: str = "") -> None:
        """A text of many lines."""
        for line in visible(text, block=True).split("\n"):
            self._write(indent + line)

    def json(self, value: Any) -> None:
        """One JSON value, the only thing a command writes with --json."""
        self._write(as_json(value))

    def _paint(self, text: str, piece: Piece) -> str:
        return text if isinstance(piece, str) or not self.colour else _painter(piece[1])(text)

    def _write(self, line: str) -> None:
        try:
            sys.stdout.write(line + "\n")
        except BrokenPipeError:
            stop_writing()
            raise typer.Exit(0) from None


def stop_writing() -> None:
    """The reader has gone (`| head`), which is no error; what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece[0]


@lru_cache
def _painter(style: str) -> Callable[[str], str]:
    from rich.style import Style

    return Style.parse(style).render
