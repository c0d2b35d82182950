"""JSON values as bytes: the one form that is hashed, and the one that is kept.

`encode` keeps the author's key order, so a message comes back as it went in. `canonical` sorts keys, so the
order of keys is no part of an identity. Both write compact UTF-8 in which a lone surrogate is its three-byte
form: any `str` that Python can hold goes in and comes out, and nothing is escaped that could come out joined.
`True`, `1` and `1.0` are three different values. `tests/core/test_canonical.py` proves the round trip.

    >>> encode({"b": 1, "a": "é"})
    b'{"b":1,"a":"\\xc3\\xa9"}'
    >>> canonical({"b": 1, "a": "é"}) == canonical({"a": "é", "b": 1})
    True
"""

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NoReturn

import msgspec

from stemma.errors import BadMessage

MAX_DEPTH = 64
"""Deeper values are refused: every later walk may then recurse without fear."""

_MAY_BE_ODD = frozenset({float, dict, list})

MIN_INT, MAX_INT = -(2**63), 2**64 - 1
"""What every JSON reader of the field reads back as an integer."""

_in_order = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_sorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, sort_keys=True).encode
_fast_in_order = msgspec.json.Encoder().encode
_fast_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def encode(value: Any) -> bytes:
    """The bytes of a value from `plain`, keys in the order given."""
    return _bytes(value, _fast_in_order, _in_order)


def canonical(value: Any) -> bytes:
    """The bytes of a value from `plain` that its identity is made of: keys sorted."""
    return _bytes(value, _fast_sorted, _sorted)


def _bytes(value: Any, fast: Callable[[Any], bytes], exact: Callable[[Any], str]) -> bytes:
    """As Python's json writes it; msgspec writes the same, five times as fast, save for odd floats and surrogates."""
    try:
        if not has_odd_number(value):
            return fast(value)
    except UnicodeEncodeError:  # a lone surrogate
        pass
    return exact(value).encode("utf-8", "surrogatepass")


def has_odd_number(value: Any) -> bool:
    """Whether a value holds a float that Python writes with an exponent, and msgspec otherwise, or too large an int.

    >>> has_odd_number([0.1, 1e15]), has_odd_number([1e-5])
    (False, True)
    """
    kind = type(value)
    if kind is float:
        return value != 0 and not 1e-4 <= abs(value) < 1e16
    if kind is int:
        return not MIN_INT <= value <= MAX_INT
    if kind is dict or kind is list:
        for item in value.values() if kind is dict else value:
            inner = type(item)
            if inner is int:  # most numbers are, and cost no call
                if not MIN_INT <= item <= MAX_INT:
                    return True
            elif inner in _MAY_BE_ODD and has_odd_number(item):
                return True
    return False


def decode(body: bytes) -> Any:
    """The value that `encode` or `canonical` wrote."""
    try:
        return _decode(body)
    except UnicodeDecodeError:  # a lone surrogate, which msgspec rightly does not call UTF-8
        return json.loads(body.decode("utf-8", "surrogatepass"))


def plain(value: Any, where: str = "message") -> Any:
    """A deep copy of `value` in plain JSON types, or `BadMessage` naming the place that cannot be one."""
    try:
        return _copied(value, 0)
    except _NotPlainError:  # once more, slowly, noting the place
        return _plain(value, where, 0)


def checked(value: Any, where: str) -> bytes:
    """`canonical(plain(value, where))`, at a third of its cost for what is plain already, as nearly everything is."""
    try:
        body = _fast_sorted(value)
        same = _decode(body) == value  # what was not plain comes back as something else
    except (TypeError, ValueError, OverflowError, RecursionError):
        same = False
    # Fewer brackets than levels are allowed; there may be brackets in texts, which costs time only.
    shallow = same and body.count(b"[") + body.count(b"{") < MAX_DEPTH
    return body if shallow and not has_odd_number(value) else canonical(plain(value, where))


def copy_plain(value: Any) -> Any:
    """A deep copy of a value from `plain`, whose types need no second look."""
    try:
        return _unpack(_pack(value))
    except UnicodeEncodeError:  # a lone surrogate
        return _copied(value, 0)


class _NotPlainError(Exception):
    """Something that is not already a plain JSON type."""


def _copied(value: Any, depth: int) -> Any:
    """A deep copy of what is plain already, which nearly everything is."""
    kind = type(value)
    if kind is dict:
        return _copied_dict(value, depth)
    if kind is list and depth < MAX_DEPTH:
        return [item if type(item) is str else _copied(item, depth + 1) for item in value]
    if kind is str or value is None or kind is bool:
        return value
    if (kind is int and MIN_INT <= value <= MAX_INT) or (kind is float and isfinite(value)):
        return value
    raise _NotPlainError


def _copied_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise _NotPlainError
    copy = {}
    for key, item in value.items():
        if type(key) is not str:
            raise _NotPlainError
        # Text and null, which most fields are, cost no call.
        copy[key] = item if type(item) is str or item is None else _copied(item, depth + 1)
    return copy


def _plain(value: Any, where: str, depth: int) -> Any:
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is dict:
        return _plain_dict(value, where, depth)
    if kind is list:
        return _plain_list(value, where, depth)
    return _plain_rare(value, where, depth)


def _plain_dict(value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        _refuse_depth(where)
    copy = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise BadMessage(f"{where} has the key {key!r}; JSON keys are strings, write {str(key)!r}")
        kind = type(item)
        copy[str.__str__(key)] = item if kind is str or item is None else _plain(item, f"{where}[{key!r}]", depth + 1)
    return copy


def _plain_list(value: Any, where: str, depth: int) -> list[Any]:
    if depth >= MAX_DEPTH:
        _refuse_depth(where)
    return [_plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]


def _plain_rare(value: Any, where: str, depth: int) -> Any:
    """Numbers, subclasses of JSON types (views, enums), and the objects SDKs return."""
    if isinstance(value, bool | int):
        return _plain_int(value, where)
    if isinstance(value, float):
        if not isfinite(value):
            raise BadMessage(f"{where} is {value!r}, which JSON cannot hold; use None or a string")
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return _plain_dict(value, where, depth)
    if isinstance(value, list | tuple):
        return _plain_list(value, where, depth)
    if callable(dump := getattr(value, "model_dump", None)):  # pydantic objects, as the SDKs hand out
        return _plain(dump(mode="json", exclude_unset=True), where, depth)
    raise BadMessage(f"{where} is a {type(value).__name__}, which JSON cannot hold; convert it first")


def _plain_int(value: int, where: str) -> int:
    number = int(value)
    if not MIN_INT <= number <= MAX_INT:
        raise BadMessage(f"{where} needs more than 64 bits; write it as a string")
    return number


def _refuse_depth(where: str) -> NoReturn:
    raise BadMessage(f"{where[:80]}… is nested deeper than {MAX_DEPTH} levels; flatten it or keep it as a string")
