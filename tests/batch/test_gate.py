import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultserver import in_loop
from stemma.batch.gate import CALM_SECONDS, Gate, Pace, after_success, after_trouble, bounded, parted
from stemma.batch.paced import PacedModel
from stemma.errors import OutOfResources
from stemma.models.errors import EndpointFailed, RateLimited
from stemma.models.protocol import Request
from stemma.models.scripted import ScriptedModel

TOO_MUCH, BROKEN = RateLimited("429"), EndpointFailed("500")


def after(pace: Pace, successes: int) -> Pace:
    for _ in range(successes):
        pace = after_success(pace)
    return pace


def test_a_slow_start_doubles_with_each_round_up_to_the_ceiling():
    pace = Pace(4, 20)
    sizes = []
    for _ in range(4):
        pace = after(pace, pace.limit)
        sizes.append(pace.limit)
    assert sizes == [8, 16, 20, 20]


def test_a_rate_limit_takes_a_fifth_away_and_ends_the_slow_start():
    pace = after_trouble(Pace(100, 500), TOO_MUCH, now=5.0)
    assert (pace.limit, pace.starting, pace.why) == (80, False, "rate limited")
    assert after(pace, 79).limit == 80
    assert after(pace, 80).limit == 81, "one more for a whole round"


def test_many_rate_limits_in_one_second_are_one_cut():
    pace = Pace(100, 500)
    for tenth in range(10):
        pace = after_trouble(pace, TOO_MUCH, now=tenth / 10)
    assert pace.limit == 80
    assert after_trouble(pace, TOO_MUCH, now=CALM_SECONDS).limit == 64


def test_a_machine_at_its_limits_is_pressure_like_a_rate_limit():
    pace = after_trouble(Pace(100, 500), OutOfResources("Too many open files"), now=5.0)
    assert (pace.limit, pace.why) == (80, "this machine is at its limits")


def test_a_broken_server_stops_growth_and_takes_nothing_away():
    pace = after_trouble(Pace(100, 500), BROKEN, now=0.0)
    assert (pace.limit, pace.starting, pace.why) == (100, False, "no growth: EndpointFailed")


@given(st.integers(1, 600), st.lists(st.sampled_from(["well", "much", "broken"])), st.floats(0.01, 3))
def test_the_limit_stays_between_one_and_the_ceiling_whatever_happens(start, events, step):
    pace = Pace(start, 600)
    for number, event in enumerate(events):
        if event == "well":
            pace = after_success(pace)
        else:
            pace = after_trouble(pace, TOO_MUCH if event == "much" else BROKEN, number * step)
        assert 1 <= pace.limit <= 600


@in_loop
async def test_no_more_are_inside_than_the_limit_and_all_come_in_their_turn():
    gate, order, most = Gate(Pace(2, 2), lambda: 0.0), [], 0

    async def visitor(number):
        nonlocal most
        async with gate:
            order.append(number)
            most = max(most, gate.inside)
            await asyncio.sleep(0)

    await asyncio.gather(*map(visitor, range(20)))
    assert (order, most, gate.inside) == ([*range(20)], 2, 0)


@in_loop
async def test_who_leaves_the_queue_takes_no_place_with_him():
    gate = Gate(Pace(1, 1), lambda: 0.0)

    async def visit():
        async with gate:
            await asyncio.sleep(0.01)

    tasks = [asyncio.ensure_future(visit()) for _ in range(6)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert gate.inside == 0
    await asyncio.wait_for(visit(), 1)


@in_loop
async def test_room_for_more_lets_those_in_who_wait():
    gate, inside = Gate(Pace(1, 4), lambda: 0.0), []
    leave = asyncio.Event()

    async def visit(number):
        async with gate:
            inside.append(number)
            await leave.wait()

    tasks = [asyncio.ensure_future(visit(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert inside == [0]
    gate.went_well()
    await asyncio.sleep(0)
    assert inside == [0, 1]
    leave.set()
    await asyncio.gather(*tasks)


def test_it_grows_while_more_would_be_begun_although_some_of_those_under_way_ask_nothing():
    told = []
    gate = Gate(Pace(4, 8), lambda: 0.0, grown=lambda: told.append(gate.pace.limit))
    gate.went_well()
    assert (gate.pace.limit, told) == (4, [])
    gate.wanted = True
    gate.went_well()
    assert (gate.pace.limit, told) == (5, [5])


@in_loop
async def test_an_answer_lets_the_gate_grow():
    gate = Gate(Pace(1, 10), lambda: 0.0)
    model = PacedModel(ScriptedModel(["fine"]), gate)
    assert (await model.reply(Request(messages=[]))).message["content"] == "fine"
    assert (gate.pace.limit, gate.inside) == (2, 0)


@in_loop
async def test_a_question_that_fails_gives_its_place_back():
    gate = Gate(Pace(1, 1), lambda: 0.0)
    model = PacedModel(ScriptedModel([BROKEN, "fine"]), gate)
    with pytest.raises(EndpointFailed):
        await model.reply(Request(messages=[]))
    assert (await model.reply(Request(messages=[]))).message["content"] == "fine"


# ── shared between processes ─────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 600), st.integers(1, 8), st.data())
def test_parts_of_a_pace_are_together_what_was_parted(ceiling, among, data):
    among = min(among, ceiling)
    whole = Pace(data.draw(st.integers(1, ceiling)), ceiling)
    stays, parts = whole, []
    for left in range(among, 1, -1):
        stays, given_away = parted(stays, left)
        parts.append(given_away)
    everybody = [stays, *parts]
    assert sum(part.ceiling for part in everybody) == ceiling
    assert max(part.ceiling for part in everybody) - min(part.ceiling for part in everybody) <= 1
    assert all(1 <= part.limit <= max(part.ceiling, 1) for part in everybody)
    assert sum(part.limit for part in everybody) <= max(whole.limit, among)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_a_limit_at_its_ceiling_stays_there_and_any_other_is_below_it(limit, ceiling, other):
    limit = min(limit, ceiling)
    found = bounded(Pace(limit, ceiling), other)
    assert found.ceiling == other
    assert found.limit == (other if limit == ceiling else min(limit, other))


@in_loop
async def test_a_gate_with_no_places_lets_in_who_waits_when_it_gets_some():
    gate = Gate(Pace(0, 0), lambda: 0.0)

    async def visit():
        async with gate:
            return gate.inside

    waiting = asyncio.ensure_future(visit())
    await asyncio.sleep(0)
    assert gate.inside == 0
    gate.change(bounded(gate.pace, 2))
    assert await waiting == 1
