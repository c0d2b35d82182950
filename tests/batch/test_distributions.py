import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.batch.distributions import (
    BUILT_IN,
    BadDistribution,
    Distribution,
    draw,
    find_distribution,
    read_distributions,
)
from stemma.tools.toolsets import TOOLSETS

PERCENTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100), min_size=1)


@given(PERCENTS, st.integers())
def test_a_draw_is_never_empty_and_holds_what_is_certain(percents, seed):
    drawn = draw(Distribution("d", percents), random.Random(seed))
    assert drawn
    assert set(drawn) <= set(percents)
    assert {name for name, percent in percents.items() if percent == 100} <= set(drawn)
    if any(percents.values()):
        assert all(percents[name] for name in drawn)


def test_toolsets_are_drawn_as_often_as_their_percentages_say():
    chance, counts = random.Random(1), Counter()
    for _ in range(4000):
        counts.update(draw(Distribution("d", {"often": 80, "seldom": 20, "always": 100}), chance))
    assert counts["always"] == 4000
    assert abs(counts["often"] - 3200) < 120
    assert abs(counts["seldom"] - 800) < 120


def test_every_built_in_distribution_names_toolsets_that_there_are():
    for one in BUILT_IN.values():
        assert set(one.percent) <= {*TOOLSETS, "delegation"}


def test_a_users_own_distributions_stand_beside_the_built_in_ones(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("mine: {file: 50, web: 12.5}\nsafe: {todo: 100}\n")
    assert find_distribution("mine", file).percent == {"file": 50.0, "web": 12.5}
    assert find_distribution("safe", file).percent == {"todo": 100.0}
    assert find_distribution("minimal", file) == BUILT_IN["minimal"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mine: {file: 150}", "'file' has 150, which is no percentage"),
        ("mine: {file: yes}", "'file' has True, which is no percentage"),
        ("mine: [file]", "'mine' is no mapping"),
        ("mine: {}", "'mine' is no mapping"),
        ("- mine", "is no mapping of names"),
        ("mine: {file", "cannot read distributions"),
    ],
)
def test_a_file_that_holds_no_distributions_is_refused(tmp_path, text, complaint):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(BadDistribution, match=complaint):
        find_distribution("mine", file)


def test_a_name_that_is_nearly_right_gets_a_hint(tmp_path):
    with pytest.raises(BadDistribution, match="did you mean 'minimal'"):
        find_distribution("minimla")
    with pytest.raises(BadDistribution, match="cannot read"):
        find_distribution("minimal", tmp_path / "none.yaml")


def test_a_name_that_stands_twice_in_a_file_is_told_with_its_line(tmp_path):
    file = tmp_path / "d.yaml"
    file.write_text("mine: {file: 50}\nmine: {web: 50}\n")
    with pytest.raises(BadDistribution, match=r"d\.yaml:2: 'mine' stands here twice"):
        read_distributions(file)
    file.write_text("mine: {file: 50, file: 60}\n")
    with pytest.raises(BadDistribution, match=r"d\.yaml:1: 'file' stands here twice"):
        read_distributions(file)
