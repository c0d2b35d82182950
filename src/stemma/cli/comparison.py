"""The difference of two lines, for people and for programs. `tests/cli/test_diff.py` pins how it looks."""

import json
from collections.abc import Iterator
from typing import Any

from stemma.cli.address import SHORT, Place
from stemma.cli.brief import STYLES
from stemma.cli.compare import Difference, compare
from stemma.cli.entry import entry
from stemma.cli.listing import calls_by_node
from stemma.cli.screen import Piece
from stemma.cli.worddiff import MISSING, Changed, Words, changed_fields, words
from stemma.core.ids import Id

_CONTEXT = 60
"""Characters that are shown on either side of a change in a long text."""

_LONGEST = 2_000
"""Characters of one change that are shown."""

_SIGNS = {"=": ("", "", ""), "-": ("[-", "-]", "red"), "+": ("{+", "+}", "green")}


class Comparison:
    """Two lines, and what differs between them."""

    def __init__(self, a: Place, b: Place) -> None:
        self.a, self.b = a, b
        self.nodes_a, self.nodes_b = a.nodes()[: a.index + 1], b.nodes()[: b.index + 1]
        self.calls = calls_by_node(a.graph) | calls_by_node(b.graph)
        self.differences = list(compare(a.line[: a.index + 1], b.line[: b.index + 1]))

    def changed(self, difference: Difference) -> list[Changed]:
        """The fields that differ between two messages that belong together."""
        before, after = self.a.line[difference.a.start], self.b.line[difference.b.start]
        return changed_fields(before.to_dict(), after.to_dict())

    # ── for people ───────────────────────────────────────────────────────────────────────────────────────────

    def as_lines(self, width: int) -> Iterator[list[Piece]]:
        for sign, style, place, nodes in (("---", "red", self.a, self.nodes_a), ("+++", "green", self.b, self.nodes_b)):
            yield [(f"{sign} ", style), (place.address(), "bold"), (f"  {len(nodes)} messages", "dim")]
        for difference in self.differences:
            yield from self.difference_lines(difference, width)

    def difference_lines(self, difference: Difference, width: int) -> Iterator[list[Piece]]:
        kind, count = difference.kind, len(difference.a)
        if kind == "same":
            yield [(f"  … {count:,} message{'' if count == 1 else 's'} in common", "dim")]
        elif kind == "changed":
            yield self.heading(difference)
            for field in self.changed(difference):
                yield from field_lines(field)
        elif kind == "removed":
            yield self.entry(self.a, self.nodes_a, difference.a.start, ("- ", "bold red"), width)
        else:
            yield self.entry(self.b, self.nodes_b, difference.b.start, ("+ ", "bold green"), width)

    def heading(self, difference: Difference) -> list[Piece]:
        node_a, node_b = self.nodes_a[difference.a.start].hex(), self.nodes_b[difference.b.start].hex()
        role = self.a.line[difference.a.start].role
        ids = f"{node_a[:SHORT]} → {node_b[:SHORT]} "
        return [("~ ", "bold yellow"), (ids, "dim"), (role, STYLES.get(role, "blue"))]

    def entry(self, place: Place, nodes: list[Id], index: int, lead: Piece, width: int) -> list[Piece]:
        node = nodes[index]
        return entry(node, place.line[index], self.calls.get(node.hex(), []), [], lead=lead, width=width)

    # ── for programs ─────────────────────────────────────────────────────────────────────────────────────────

    def as_dict(self) -> dict[str, Any]:
        return {
            "a": {"line": self.a.address(), "messages": len(self.nodes_a)},
            "b": {"line": self.b.address(), "messages": len(self.nodes_b)},
            "differences": [self.difference_dict(difference) for difference in self.differences],
        }

    def difference_dict(self, difference: Difference) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": difference.kind}
        for side, where, place, nodes in (
            ("a", difference.a, self.a, self.nodes_a),
            ("b", difference.b, self.b, self.nodes_b),
        ):
            found[side] = {"index": where.start, "messages": len(where)}
            if difference.kind != "same" and where:
                message = place.line[where.start]
                found[side] |= {"node": nodes[where.start].hex(), "message": message.id.hex(), "role": message.role}
        if difference.kind == "changed":
            found["fields"] = [field_dict(field) for field in self.changed(difference)]
        return found


def field_lines(field: Changed) -> Iterator[list[Piece]]:
    """What changed in a field, in one line or, if the text has many, in several."""
    line: list[Piece] = [(f"    {path_text(field.path)}: ", "dim")]
    steps = changed_words(field)
    for number, (sign, text) in enumerate(steps):
        opening, closing, style = _SIGNS[sign]
        said = _folded(text, first=number == 0, last=number == len(steps) - 1) if sign == "=" else _shortened(text)
        first, *rest = f"{opening}{said}{closing}".split("\n")
        line.append((first, style))
        for part in rest:
            yield line
            line = ["      ", (part, style)]
    yield line


def field_dict(field: Changed) -> dict[str, Any]:
    """The same for a program; a side that has no such field is left away."""
    sides = {"before": field.before, "after": field.after}
    found = {name: value for name, value in sides.items() if value is not MISSING}
    return {"path": list(field.path), **found, "words": changed_words(field)}


def path_text(path: tuple[str | int, ...]) -> str:
    """`tool_calls[0].function.arguments`"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def changed_words(field: Changed) -> Words:
    """What changed in a field, as text; a value that is no text is compared as JSON."""
    present = [value for value in (field.before, field.after) if value is not MISSING]
    spell = str if all(isinstance(value, str) for value in present) else _as_json
    if field.before is MISSING:
        return [("+", spell(field.after))]
    if field.after is MISSING:
        return [("-", spell(field.before))]
    return words(spell(field.before), spell(field.after))


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _folded(text: str, *, first: bool, last: bool) -> str:
    """Text that stayed: its ends next to a change, if it is long."""
    if len(text) <= 3 * _CONTEXT:
        return text
    return ("" if first else text[:_CONTEXT]) + " … " + ("" if last else text[-_CONTEXT:])


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]} … {len(text) - _LONGEST:,} more characters"
