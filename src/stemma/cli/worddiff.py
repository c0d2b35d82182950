"""Two texts, or two messages, as what stayed and what changed, word by word. `tests/cli/test_worddiff.py` proves it.

>>> words("How many below 100?", "How many are below 100?")
[('=', 'How many '), ('+', 'are '), ('=', 'below 100?')]
"""

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from stemma.cli.alignment import align
from stemma.core.canonical import encode

_WORD = re.compile(r"\w+|\s+|[^\w\s]")

Words = list[tuple[Literal["=", "-", "+"], str]]
"""Text that stayed, was taken out, was put in."""


class Changed(NamedTuple):
    """A field that differs between two messages."""

    path: tuple[str | int, ...]
    """Where: `("tool_calls", 0, "function", "arguments")`."""
    before: Any
    """`MISSING` if there was none."""
    after: Any


class _Missing:
    """The value of a field that is not there."""


MISSING = _Missing()


def words(before: str, after: str) -> Words:
    """What changed between two texts; if next to nothing stayed, all of it did."""
    a, b = _WORD.findall(before), _WORD.findall(after)
    found: Words = []
    for same, in_a, in_b in align(a, b):
        old, new = "".join(a[in_a.start : in_a.stop]), "".join(b[in_b.start : in_b.stop])
        found += [("=", old)] if same else [("-", old), ("+", new)]
    joined = _joined(found)
    stayed = sum(len(text) for sign, text in joined if sign == "=")
    if stayed * 3 < min(len(before), len(after)):
        return _change(before, after)
    return joined


def _joined(steps: Words) -> Words:
    """Without signs and blanks that stayed alone between two changes, which would only cut the change into bits."""
    found: Words = []
    old = new = ""
    for number, (sign, text) in enumerate(steps):
        alone = bool(old or new) and number + 1 < len(steps) and not any(char.isalnum() for char in text)
        if sign == "=" and not alone:
            found += [*_change(old, new), (sign, text)]
            old = new = ""
        else:
            old += text if sign != "+" else ""
            new += text if sign != "-" else ""
    return found + _change(old, new)


def _change(old: str, new: str) -> Words:
    parts: Words = [("-", old), ("+", new)]
    return [part for part in parts if part[1]]


def changed_fields(before: dict[str, Any], after: dict[str, Any]) -> list[Changed]:
    """Every field, at any depth, that differs."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    pairs = [(path, old.get(path, MISSING), new.get(path, MISSING)) for path in old | new]
    return [Changed(*pair) for pair in pairs if not _alike(pair[1], pair[2])]


def _alike(before: Any, after: Any) -> bool:
    if before is MISSING or after is MISSING:
        return before is after
    return encode(before) == encode(after)  # as JSON: True, 1 and 1.0 are three values


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The values that hold no others, with their places; the depth of a message is bounded, so this may recurse."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value
