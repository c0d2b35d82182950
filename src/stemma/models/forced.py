r"""Which tokens of a reply a grammar forced: those for which it left one choice, whatever the model thought.

llama.cpp does not say it, so the grammar (GBNF, as `grammar` writes it) is walked along the text that was sampled. A
character is forced if the grammar allowed no other in its place; a token if all its characters are. The token that ends
a reply is forced if nothing but the end was allowed.

    >>> walked = walk(r'root ::= "<a>" [xy]{1,3} "</a>"', ["<", "a>", "x", "yx", "</a>", ""], ended=True)
    >>> walked.forced, walked.cuts
    ([(0, 2), (4, 6)], [6])

A reply is cut where a repetition had come to its limit and the grammar went on by itself: the model had no say in where
that part of it ends, as with an answer that was cut by `max_tokens`. `tests/models/test_forced.py` proves it.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec


class Walked(msgspec.Struct, frozen=True):
    """What a grammar did to a reply."""

    forced: list[tuple[int, int]]
    """Runs of tokens that had no alternative."""
    cuts: list[int]
    """Where, in bytes, parts of the reply ended because the grammar allowed no more of them."""


def walk(grammar: str, pieces: Sequence[str | bytes], *, ended: bool) -> Walked:
    """Follow a reply, token by token; the last is the token that ends it if it `ended` by itself.

    Tokens may end inside a character, so they may be given as bytes.
    """
    chunks = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    forced, cuts = _forced_bytes(grammar, b"".join(chunks), ended)
    found, at = [], 0
    for number, chunk in enumerate(chunks):
        is_end = ended and number == len(chunks) - 1
        here = forced[at:] if is_end else forced[at : at + len(chunk)]
        found.append(bool(here) and all(here))
        at += len(chunk)
    return Walked(list(_runs(found)), cuts)


def _runs(flags: list[bool]) -> Iterator[tuple[int, int]]:
    start = None
    for at, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = at
        elif not flag and start is not None:
            yield start, at
            start = None


def _forced_bytes(grammar: str, text: bytes, ended: bool) -> tuple[list[bool], list[int]]:
    """For each byte whether it was forced, one more for the end if it ended; and where anything was cut."""
    rules = _rules(grammar)
    stacks: set[_Stack] = {(rules["root"], None)}
    found: list[bool] = []
    cuts: list[int] = []
    for char in text.decode("utf-8", "surrogateescape"):
        allowed = _allowed(rules, stacks)
        size = len(char.encode("utf-8", "surrogateescape"))
        if allowed.is_forced and allowed.at_limit:
            cuts.append(len(found))
        found += [allowed.is_forced] * size
        stacks = {rest for chars, rest in allowed.next if chars.has(char)}
        if not stacks:  # not a text of this grammar: nothing can be said of the rest
            return found[:-size] + [False] * (len(text) - len(found) + size + ended), cuts
    if ended:
        allowed = _allowed(rules, stacks)
        found.append(allowed.can_end and not allowed.next)
        if found[-1] and allowed.at_limit:
            cuts.append(len(text))
    return found, cuts


# ── where a grammar may go ───────────────────────────────────────────────────────────────────────────────────


class _Chars(NamedTuple):
    """One character: of these ranges, or of all others."""

    ranges: tuple[tuple[str, str], ...]
    others: bool = False

    def has(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.others

    @property
    def only(self) -> str | None:
        """The one character that it can be."""
        one = len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1] and not self.others
        return self.ranges[0][0] if one else None


class _Sequence(NamedTuple):
    items: tuple[Any, ...]


class _Choice(NamedTuple):
    items: tuple[Any, ...]


class _Repeat(NamedTuple):
    item: Any
    low: int
    high: int | None
    limited: bool
    """Whether it has a limit that the text may come up to: more than one, and more than it must have."""


class _Rule(NamedTuple):
    name: str


_Stack = tuple[Any, Any] | None
"""What is still to come: a node, and the stack below it; None where the text may end."""


class _Allowed(NamedTuple):
    next: list[tuple[_Chars, _Stack]]
    can_end: bool
    at_limit: bool

    @property
    def is_forced(self) -> bool:
        """Whether one character alone may come."""
        first = self.next[0][0].only if self.next else None
        return not self.can_end and first is not None and all(chars.only == first for chars, _ in self.next)


def _allowed(rules: dict[str, Any], stacks: set[_Stack]) -> _Allowed:
    """What may come after all that was read."""
    found: list[tuple[_Chars, _Stack]] = []
    can_end = at_limit = False
    seen, waiting = set(stacks), list(stacks)
    while waiting:
        stack = waiting.pop()
        if stack is None:
            can_end = True
            continue
        node, rest = stack
        if isinstance(node, _Chars):
            found.append((node, rest))
            continue
        at_limit |= isinstance(node, _Repeat) and node.limited and node.high == 0
        for after in _expanded(rules, node, rest):
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return _Allowed(found, can_end, at_limit)


def _expanded(rules: dict[str, Any], node: Any, rest: _Stack) -> list[_Stack]:
    match node:
        case _Rule(name):
            return [(rules[name], rest)]
        case _Choice(items):
            return [(item, rest) for item in items]
        case _Sequence(items):
            for item in reversed(items):
                rest = (item, rest)
            return [rest]
        case _Repeat(item, low, high, limited):
            once = (item, (_Repeat(item, max(0, low - 1), None if high is None else high - 1, limited), rest))
            return [rest] if high == 0 else [once] if low else [rest, once]
    raise AssertionError(node)


# ── reading a grammar ────────────────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z0-9-]+|[()|*+?]|\{\d+(?:,\d*)?\})')
_CHAR = re.compile(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|([^\\])", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@lru_cache(maxsize=16)
def _rules(grammar: str) -> dict[str, Any]:
    """The rules of a grammar, which has one a line."""
    lines = (line.partition("::=") for line in grammar.splitlines() if "::=" in line)
    return {name.strip(): _Reader(body).choice() for name, _, body in lines}


class _Reader:
    """One rule being read."""

    def __init__(self, body: str) -> None:
        self._tokens = _TOKEN.findall(body)
        self._at = 0

    def choice(self) -> Any:
        """Everything up to a closing bracket or the end."""
        items = [self._sequence()]
        while self._take("|"):
            items.append(self._sequence())
        return items[0] if len(items) == 1 else _Choice(tuple(items))

    def _sequence(self) -> Any:
        items: list[Any] = []
        while self._at < len(self._tokens) and self._tokens[self._at] not in ("|", ")"):
            items.append(self._repeated(self._item()))
        return items[0] if len(items) == 1 else _Sequence(tuple(items))

    def _item(self) -> Any:
        token = self._tokens[self._at]
        self._at += 1
        if token == "(":
            inner = self.choice()
            self._take(")")
            return inner
        if token[0] == '"':
            return _Sequence(tuple(_Chars(((char, char),)) for char in _chars(token[1:-1])))
        return _class(token[1:-1]) if token[0] == "[" else _Rule(token)

    def _repeated(self, item: Any) -> Any:
        token = self._tokens[self._at] if self._at < len(self._tokens) else ""
        if token not in _COUNTS and not token.startswith("{"):
            return item
        self._at += 1
        low, high = _COUNTS[token] if token in _COUNTS else _bounds(token[1:-1])
        return _Repeat(item, low, high, high is not None and high > max(1, low))

    def _take(self, token: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at] == token
        self._at += found
        return found


def _bounds(written: str) -> tuple[int, int | None]:
    low, comma, high = written.partition(",")
    return int(low), (int(high) if high else None) if comma else int(low)


def _chars(written: str) -> list[str]:
    """The characters of a literal or a class, escapes read."""
    found = []
    for match in _CHAR.finditer(written):
        code = match[1] or match[2] or match[3]
        found.append(chr(int(code, 16)) if code else match[5] or _ESCAPED.get(match[4], match[4]))
    return found


def _class(written: str) -> _Chars:
    others = written.startswith("^")
    parts = _CHAR.finditer(written[others:])
    marks = [("-" if match[0] == "-" else "", *_chars(match[0])) for match in parts]
    ranges, at = [], 0
    while at < len(marks):
        is_range = at + 2 < len(marks) and marks[at + 1][0] == "-"
        ranges.append((marks[at][1], marks[at + 2][1] if is_range else marks[at][1]))
        at += 3 if is_range else 1
    return _Chars(tuple(ranges), others)
