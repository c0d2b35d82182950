"""When another process is called, by numbers alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.batch.busy import BUSY, SHORTEST, WORTH_IT, Reading, begins_window, ends_window, needs_help

BEGUN = Reading(at=10.0, worked=1.0, answered=1, running=64, waiting=1000)


def later(seconds=0.3, busy=1.0, answered=65, waiting=900):
    return Reading(
        at=BEGUN.at + seconds, worked=BEGUN.worked + busy * seconds, answered=answered, running=64, waiting=waiting
    )


def test_a_thread_that_works_all_the_time_needs_help_while_enough_tasks_wait():
    assert needs_help(BEGUN, later(busy=0.95))
    assert not needs_help(BEGUN, later(busy=0.95, waiting=WORTH_IT - 1))


def test_a_thread_that_waits_for_the_endpoint_needs_none():
    assert not needs_help(BEGUN, later(seconds=1.1, busy=0.3))


@pytest.mark.parametrize(
    ("reading", "enough"),
    [
        (later(), True),
        (later(seconds=SHORTEST / 2), False),
        (later(answered=64), False),
        (later(seconds=5.0, answered=10), False),
    ],
)
def test_it_is_judged_when_as_many_were_answered_as_ran_and_some_time_has_passed(reading, enough):
    assert ends_window(BEGUN, reading) == enough


@pytest.mark.parametrize(("answered", "running", "can"), [(1, 64, True), (0, 64, False), (9, 0, False)])
def test_the_rush_before_the_first_answer_and_a_run_that_is_idle_are_not_judged(answered, running, can):
    reading = Reading(at=0.0, worked=0.0, answered=answered, running=running, waiting=1000)
    assert begins_window(reading) == can


@given(busy=st.floats(0, 1), waiting=st.integers(0, 10_000), seconds=st.floats(SHORTEST, 100))
def test_help_is_wanted_exactly_by_the_busy_who_have_enough_to_give_away(busy, waiting, seconds):
    found = needs_help(BEGUN, later(seconds=seconds, busy=busy, waiting=waiting))
    if abs(busy - BUSY) > 1e-6:
        assert found == (busy > BUSY and waiting >= WORTH_IT)
