"""Any JSON value, with any text in it, survives its bytes; and values that differ at all have bytes that differ."""

import json
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import NASTY, SAME_IN_PYTHON, json_values, texts
from stemma.core.canonical import MAX_DEPTH, MAX_INT, MIN_INT, canonical, checked, copy_plain, decode, encode, plain
from stemma.core.message import Message
from stemma.errors import BadMessage


def exact(value: Any) -> str:
    """What a value is, types and order of keys included; a split surrogate pair stays split in it."""
    return json.dumps(value, ensure_ascii=False)


def id_with(value: Any) -> bytes:
    return Message.of({"role": "user", "content": "", "value": value}).id


def shuffled(value: Any, turn: Callable[[list[Any]], list[Any]]) -> Any:
    """The same value, with the keys of every dict in it turned about."""
    if isinstance(value, dict):
        return {key: shuffled(item, turn) for key, item in turn(list(value.items()))}
    if isinstance(value, list):
        return [shuffled(item, turn) for item in value]
    return value


@given(json_values())
def test_any_value_comes_back_as_it_went_in_with_its_keys_in_order(value):
    assert exact(decode(encode(plain(value)))) == exact(value)


@given(json_values())
def test_the_canonical_form_holds_the_whole_value(value):
    assert exact(shuffled(decode(canonical(plain(value))), sorted)) == exact(shuffled(value, sorted))


@given(json_values(), st.randoms())
def test_the_order_of_keys_is_no_part_of_an_identity(value, random):
    turned = shuffled(value, lambda items: random.sample(items, len(items)))
    assert canonical(plain(turned)) == canonical(plain(value))
    assert id_with(turned) == id_with(value)


@given(json_values(), json_values())
def test_two_values_share_their_canonical_form_only_if_they_are_the_same(one, other):
    same = exact(shuffled(one, sorted)) == exact(shuffled(other, sorted))
    assert (canonical(plain(one)) == canonical(plain(other))) == same


@given(texts())
def test_any_text_survives_as_a_value_and_as_a_key(text):
    assert decode(encode(plain({text: text}))) == {text: text}


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_each_nasty_text_survives_alone_and_beside_the_others(text):
    everything = [text, *NASTY]
    assert decode(encode(everything)) == everything
    assert decode(canonical({text: everything})) == {text: everything}


def test_a_split_surrogate_pair_comes_back_split_and_is_not_the_character_it_would_join_to():
    split, joined = "\ud83d\ude00", "😀"
    assert len(decode(encode(split))) == 2
    assert len(decode(encode(joined))) == 1
    assert decode(encode([split, joined])) == [split, joined]
    assert id_with(split) != id_with(joined)


def test_a_composed_letter_is_not_the_decomposed_one():
    assert id_with("é") != id_with("e\u0301")


def test_true_and_one_and_one_point_zero_are_three_different_values():
    assert len({id_with(value) for value in (True, 1, 1.0)}) == 3
    assert len({id_with({"deep": [value]}) for value in (True, 1, 1.0)}) == 3
    assert [type(value) for value in decode(encode([True, 1, 1.0]))] == [bool, int, float]


def test_minus_zero_is_kept_and_is_not_zero():
    assert exact(decode(encode(-0.0))) == "-0.0"
    assert len({id_with(value) for value in (0, 0.0, -0.0, False)}) == 4


def test_nothing_and_emptiness_are_different_values():
    assert len({id_with(value) for value in (None, "", [], {}, 0, False)}) == 6
    assert Message.of({"role": "user", "content": None}).id != Message.of({"role": "user"}).id


def test_the_integers_that_json_readers_agree_on_are_kept_exactly():
    numbers = [MIN_INT, MIN_INT + 1, -1, 0, 2**53 + 1, 2**63, MAX_INT]
    assert decode(encode(plain(numbers))) == numbers
    assert all(type(number) is int for number in decode(encode(numbers)))


@pytest.mark.parametrize("piece", ["x", "\x00", "\ud800", "é", "😀", "\u2028", '"'], ids=ascii)
def test_a_string_of_a_mebibyte_survives(piece):
    text = piece * (1024 * 1024)
    assert decode(encode(plain({"content": text}))) == {"content": text}
    assert len(id_with(text)) == 32


@pytest.mark.parametrize("around", [lambda value: [value], lambda value: {"deeper": value}])
def test_the_deepest_value_that_is_allowed_survives_and_one_level_more_is_refused(around):
    value: Any = "floor"
    for _ in range(MAX_DEPTH):
        value = around(value)
    assert decode(encode(plain(value))) == value
    with pytest.raises(BadMessage, match="deeper than 64"):
        plain(around(value))


# ── what is refused, and where it says the trouble is ────────────────────────────────────────────────────────────


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


REFUSED = [
    pytest.param(float("nan"), "nan", id="nan"),
    pytest.param(float("inf"), "inf", id="inf"),
    pytest.param(float("-inf"), "-inf", id="-inf"),
    pytest.param(MAX_INT + 1, "64 bits", id="too large"),
    pytest.param(MIN_INT - 1, "64 bits", id="too small"),
    pytest.param(10**5000, "64 bits", id="5,000 digits"),
    pytest.param({1, 2}, "a set", id="set"),
    pytest.param(b"bytes", "a bytes", id="bytes"),
    pytest.param(1j, "a complex", id="complex"),
    pytest.param(object(), "a object", id="object"),
    pytest.param(deep(MAX_DEPTH + 1), "deeper than 64", id="too deep"),
    pytest.param(endless(), "deeper than 64", id="endless"),
]


@pytest.mark.parametrize(("value", "what"), REFUSED)
def test_a_value_json_cannot_hold_is_refused_with_its_place(value, what):
    with pytest.raises(BadMessage) as refusal:
        plain({"role": "user", "parts": ["fine", {"x": value}]})
    assert "message['parts'][1]['x']" in str(refusal.value)
    assert what in str(refusal.value)


@pytest.mark.parametrize("key", [1, 1.5, True, None, ("a", "b"), b"role"])
def test_a_key_that_is_no_string_is_refused_with_its_place_and_its_remedy(key):
    with pytest.raises(BadMessage) as refusal:
        plain({"role": "user", "extra": [{key: 1}]})
    assert f"message['extra'][0] has the key {key!r}" in str(refusal.value)
    assert repr(str(key)) in str(refusal.value)


def test_an_endless_dict_is_refused():
    value: dict[str, Any] = {"role": "user"}
    value["self"] = value
    with pytest.raises(BadMessage, match="deeper than 64"):
        plain(value)


# ── what is taken for a JSON value ───────────────────────────────────────────────────────────────────────────────


class Colour(str, Enum):  # noqa: UP042 - the older way to write it is what SDKs use, and its str() is the trap
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


def test_kinds_of_the_json_types_become_the_types_themselves():
    value = plain(
        {"a": Colour.RED, "b": Level.HIGH, "c": (1, 2), "d": OrderedDict(x=1), "e": MappingProxyType({"y": 2})}
    )
    assert value == {"a": "red", "b": 3, "c": [1, 2], "d": {"x": 1}, "e": {"y": 2}}
    assert [type(item) for item in value.values()] == [str, int, list, dict, dict]


def test_a_kind_of_string_is_the_text_it_holds_as_a_value_and_as_a_key():
    assert plain({Colour.RED: Colour.RED, Loud("quiet"): Loud("quiet")}) == {"red": "red", "quiet": "quiet"}
    assert [type(key) for key in plain({Colour.RED: 1, Loud("quiet"): 1})] == [str, str]


@pytest.mark.parametrize("value", SAME_IN_PYTHON, ids=repr)
def test_plain_keeps_the_type_of_a_number(value):
    assert exact(plain([value])) == exact([value])


def test_plain_copies_to_any_depth():
    given_value = {"list": [{"deep": [1]}]}
    copy = plain(given_value)
    given_value["list"][0]["deep"].append(2)
    assert copy == {"list": [{"deep": [1]}]}


@given(json_values())
def test_the_fast_writer_writes_what_pythons_json_writes(value):
    """Ids are made of these bytes: they must not depend on which of two libraries wrote them."""
    for write, ordered in ((encode, False), (canonical, True)):
        slow = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=ordered)
        assert write(value) == slow.encode("utf-8", "surrogatepass")


def test_every_character_is_written_by_the_fast_writer_as_by_pythons_json():
    for first in range(0, 0x110000, 0x1000):
        text = "".join(chr(code) for code in range(first, first + 0x1000) if not 0xD800 <= code < 0xE000)
        assert encode({text: text}) == json.dumps({text: text}, ensure_ascii=False, separators=(",", ":")).encode()


@given(json_values())
def test_a_copy_of_a_plain_value_says_the_same_and_shares_no_container(value):
    value = plain(value)
    copy = copy_plain(value)
    assert encode(copy) == encode(value)
    assert not containers(copy) & containers(value)


def containers(value: Any) -> set[int]:
    """The dicts and lists in a value, by their identity."""
    if not isinstance(value, dict | list):
        return set()
    items = value.values() if isinstance(value, dict) else value
    return {id(value)}.union(*map(containers, items))


# ── checking and writing in one go ───────────────────────────────────────────────────────────────────────────────


@given(json_values())
def test_what_is_checked_and_written_in_one_go_is_the_same(value):
    assert checked(value, "metadata") == canonical(plain(value))


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {"a": Colour.RED, "b": Level.HIGH, "c": (1, [2]), "d": OrderedDict(x=1)},
        {"a": MappingProxyType({"y": 2})},
        {Loud("a"): Loud("b")},
        [1, True, 1.0, 1e-7, 1e22, -0.0, MAX_INT, MIN_INT],
        deep(MAX_DEPTH),
        ["["] * 100,
    ],
    ids=repr,
)
def test_kinds_of_the_json_types_are_written_as_the_types_themselves(value):
    assert checked(value, "metadata") == canonical(plain(value))


@pytest.mark.parametrize(("value", "what"), REFUSED)
def test_what_json_cannot_hold_is_not_written_either(value, what):
    with pytest.raises(BadMessage, match=r"metadata\['x'\]") as refusal:
        checked({"x": value}, "metadata")
    assert what in str(refusal.value)


@pytest.mark.parametrize("key", [1, 1.5, True, None, b"role"])
def test_a_key_that_is_no_string_is_not_written_as_one(key):
    with pytest.raises(BadMessage, match="JSON keys are strings"):
        checked({"x": {key: 1}}, "metadata")
