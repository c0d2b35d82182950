"""A message as one line of a list, a drawing or a diff: its node, its role, what it says, and remarks behind it.

● was sampled by a model call, ○ is context. Columns are aligned, and the line fits the terminal.
`tests/cli/test_log.py` pins how it looks.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from stemma.cli.address import SHORT
from stemma.cli.brief import STYLES, one_line
from stemma.cli.screen import Piece, cut, pad, visible, width_of
from stemma.core.call import Call
from stemma.core.ids import Id
from stemma.core.message import Message

_ROLE_WIDTH = 9
_START = len("● ") + SHORT + len(" ") + _ROLE_WIDTH + len("  ")
"""Columns before the text."""

_LEAST_TEXT = 24
_LONGEST_MODEL = 40


def entry(
    node: Id, message: Message, calls: Sequence[Call], remarks: Iterable[Piece], *, lead: Piece = "", width: int
) -> list[Piece]:
    """The pieces of the line."""
    style = STYLES.get(message.role, "blue")
    start: list[Piece] = [
        lead,
        ("● " if calls else "○ ", f"bold {style}"),
        (node.hex()[:SHORT], "dim"),
        (f" {pad(cut(visible(message.role), _ROLE_WIDTH), _ROLE_WIDTH)}  ", style),
    ]
    end = [piece for remark in (*sampled_by(calls), *remarks) for piece in ("  ", remark)]
    room = max(width - width_of([lead, *end]) - _START, _LEAST_TEXT)
    return [*start, cut(visible(one_line(message.to_dict(), room)), room), *end]


def sampled_by(calls: Sequence[Call]) -> list[Piece]:
    """The models that made a message, each once."""
    models = Counter(cut(visible(call.model), _LONGEST_MODEL) for call in calls) if calls else {}
    return [(f"[{model}]" if n == 1 else f"[{model} ×{n}]", "green") for model, n in models.items()]
