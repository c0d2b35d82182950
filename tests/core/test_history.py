"""The log of changes gives back every line it promised to; and the examples in the docstrings of the core are true."""

import doctest
import importlib
import pkgutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stemma.core
from stemma.core.history import Change, History, Kept
from stemma.core.message import Message

MODULES = [module.name for module in pkgutil.iter_modules(stemma.core.__path__, "stemma.core.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_are_true(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0


def message(text):
    return Message.of({"role": "user", "content": text})


FEW = [message(text) for text in "abc"]
some_lines = st.lists(st.lists(st.sampled_from(FEW), max_size=6), min_size=1, max_size=6)


def kept(at, line):
    return Kept(at, len(line), 0, "edit", 0, (), ())


@st.composite
def histories(draw):
    """A history made by random splices and appends, with a copy of the line before each splice that was kept."""
    history, line, snapshots = History(), draw(st.lists(st.sampled_from(FEW), max_size=5)), []
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            line += draw(st.lists(st.sampled_from(FEW), max_size=3))
        start = draw(st.integers(0, len(line)))
        stop = draw(st.integers(start, len(line)))
        new = draw(st.lists(st.sampled_from(FEW), max_size=3))
        if draw(st.booleans()):
            history.kept.append(kept(len(history.changes), line))
            snapshots.append(line.copy())
        removed = tuple(line[start:stop])
        line[start:stop] = new
        history.changes.append(Change(start, removed, len(new), len(line)))
    line += draw(st.lists(st.sampled_from(FEW), max_size=3))
    return history, line, snapshots


@given(histories())
def test_every_kept_line_comes_back_from_the_log(made):
    history, line, snapshots = made
    current = line.copy()
    assert [history.line_at(line, k.at, k.length) for k in history.kept] == snapshots
    found = [(number, old) for number, _, old in history.newest_first(line)]
    assert found == list(enumerate(snapshots))[::-1]
    assert line == current


@given(histories(), st.data())
def test_the_newest_lines_can_be_had_without_the_older_ones(made, data):
    history, line, snapshots = made
    down_to = data.draw(st.integers(0, len(snapshots)))
    assert [old for _, _, old in history.newest_first(line, down_to)] == snapshots[down_to:][::-1]


@given(histories())
def test_a_copy_of_a_history_grows_alone(made):
    history, line, snapshots = made
    other = history.copy()
    other.kept.append(kept(len(other.changes), line))
    other.changes.append(Change(0, tuple(line), 0, 0))
    assert [old for _, _, old in history.newest_first(line)] == snapshots[::-1]
    assert [old for _, _, old in other.newest_first([])] == [line, *snapshots[::-1]]


@given(some_lines)
def test_a_history_read_back_from_lines_gives_the_same_lines(lines):
    *old, current = lines
    history = History()
    history.restore([(kept(99, line), line) for line in old], current)
    assert [line for _, _, line in history.newest_first(current)] == old[::-1]
    assert [history.line_at(current, k.at, k.length) for k in history.kept] == old
