"""What two lines share, found in blocks, against the same found one by one."""

from hypothesis import given
from hypothesis import strategies as st

from stemma.core.splice import _BLOCK, narrowed, shared

lines = st.lists(st.sampled_from("ab"), max_size=12)
near_a_block = st.sampled_from([0, 1, _BLOCK - 1, _BLOCK, _BLOCK + 1, 2 * _BLOCK - 1, 2 * _BLOCK, 2 * _BLOCK + 1])


def shared_one_by_one(old, new):
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[len(old) - 1 - tail] == new[len(new) - 1 - tail]:
        tail += 1
    return head, tail


@given(lines, lines)
def test_short_lines(old, new):
    assert shared(old, new) == shared_one_by_one(old, new)


@given(near_a_block, lines, lines, near_a_block)
def test_lines_as_long_as_the_blocks_they_are_compared_in(head, old, new, tail):
    before, after = ["x"] * head, ["y"] * tail
    one, other = [*before, *old, *after], [*before, *new, *after]
    assert shared(one, other) == shared_one_by_one(one, other)


@given(near_a_block, near_a_block)
def test_lines_all_of_one_kind(one, other):
    assert shared(["x"] * one, ["x"] * other) == (min(one, other), 0)


@given(near_a_block, st.data())
def test_a_single_difference_anywhere_is_found(size, data):
    line = ["x"] * (size + 1)
    place = data.draw(st.integers(0, size))
    other = line.copy()
    other[place] = "y"
    assert shared(line, other) == (place, size - place)


@given(lines, lines, st.data())
def test_a_narrowed_replacement_does_the_same_and_begins_where_the_lines_part(line, new, data):
    start = data.draw(st.integers(0, len(line)))
    stop = data.draw(st.integers(start, len(line)))
    wanted = [*line[:start], *new, *line[stop:]]
    from_, to, fewer = narrowed(line, start, stop, list(new))
    assert [*line[:from_], *fewer, *line[to:]] == wanted
    head, tail = shared_one_by_one(line, wanted)
    if line != wanted:
        assert (from_, to, fewer) == (head, len(line) - tail, wanted[head : len(wanted) - tail])
    else:
        assert from_ == to
        assert fewer == []
