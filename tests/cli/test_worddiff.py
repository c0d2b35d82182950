"""Word by word: nothing is lost on either side, and changes read as a person would mark them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import json_values, texts
from stemma.cli.worddiff import MISSING, changed_fields, words


@given(texts(8), texts(8))
def test_both_texts_can_be_read_back(before: str, after: str):
    steps = words(before, after)
    assert "".join(text for sign, text in steps if sign != "+") == before
    assert "".join(text for sign, text in steps if sign != "-") == after
    assert all(text for _, text in steps)


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("", "", []),
        ("same", "same", [("=", "same")]),
        ("What is 2+2?", "What is 3+3?", [("=", "What is "), ("-", "2+2"), ("+", "3+3"), ("=", "?")]),
        ("the cat sat", "the dog sat", [("=", "the "), ("-", "cat"), ("+", "dog"), ("=", " sat")]),
        ("nothing in common", "42", [("-", "nothing in common"), ("+", "42")]),
        ("", "new", [("+", "new")]),
        ("a\nb", "a\nc", [("=", "a\n"), ("-", "b"), ("+", "c")]),
    ],
)
def test_small_examples(before: str, after: str, steps: list[tuple[str, str]]):
    assert words(before, after) == steps


def test_a_long_text_with_one_change_is_fast_and_exact():
    before = "".join(f"word{n % 977} " for n in range(100_000))
    after = before.replace("word500 ", "other ", 1)
    assert [step for step in words(before, after) if step[0] != "="] == [("-", "word500"), ("+", "other")]


def test_two_long_texts_with_nothing_in_common_are_one_change():
    assert [sign for sign, _ in words("a b " * 50_000, "c d " * 50_000)] == ["-", "+"]


def test_fields_are_compared_at_any_depth_and_as_json():
    before = {"content": "x", "n": 1, "gone": None, "calls": [{"f": {"name": "a", "args": "{}"}}], "empty": []}
    after = {"content": "x", "n": True, "calls": [{"f": {"name": "b", "args": "{}"}}], "empty": {}}
    assert changed_fields(before, after) == [
        (("n",), 1, True),
        (("gone",), None, MISSING),
        (("calls", 0, "f", "name"), "a", "b"),
        (("empty",), [], {}),
    ]


@given(st.dictionaries(texts(1), json_values(), max_size=3))
def test_equal_messages_have_no_changed_fields(fields: dict[str, object]):
    assert changed_fields(fields, dict(reversed(fields.items()))) == []
