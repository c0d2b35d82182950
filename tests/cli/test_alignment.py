"""Alignments cover both sides exactly, and stay fast where `difflib` would not be."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.cli import alignment
from stemma.cli.alignment import align, equal_run

items = st.lists(st.sampled_from("abcd"), max_size=30)


def check(a: list[str], b: list[str]) -> None:
    i = j = 0
    last = None
    for same, in_a, in_b in align(a, b):
        assert (in_a.start, in_b.start) == (i, j)
        assert same is not last
        assert len(in_a) or len(in_b)
        if same:
            assert a[in_a.start : in_a.stop] == b[in_b.start : in_b.stop]
        i, j, last = in_a.stop, in_b.stop, same
    assert (i, j) == (len(a), len(b))


@given(items, items)
def test_every_item_is_in_exactly_one_step(a: list[str], b: list[str]):
    check(a, b)


@given(st.lists(st.integers(0, 50).map(str), max_size=40), st.lists(st.integers(0, 50).map(str), max_size=40))
def test_the_same_where_unique_items_hold_the_two_together(a: list[str], b: list[str]):
    usual = alignment._SMALL
    try:
        alignment._SMALL = 8
        check(a, b)
    finally:
        alignment._SMALL = usual


@given(items, items, st.integers(0, 35), st.integers(0, 35))
def test_an_equal_run_is_the_longest(a: list[str], b: list[str], i: int, j: int):
    run = equal_run(a, i, b, j)
    assert a[i : i + run] == b[j : j + run]
    if i + run < len(a) and j + run < len(b):
        assert a[i + run] != b[j + run]


@pytest.mark.parametrize("step", [2, 7, 1_000])
def test_long_sequences_with_many_changes_keep_what_they_share(step: int):
    a = [str(n) for n in range(20_000)]
    b = [f"{n}'" if n % step == 0 else str(n) for n in range(20_000)]
    shared = sum(len(found.a) for found in align(a, b) if found.same)
    assert shared == len(set(a) & set(b))


def test_long_sequences_of_few_different_items_finish():
    chance = random.Random(1)
    check([chance.choice("ab") for _ in range(5_000)], [chance.choice("ab") for _ in range(5_000)])
