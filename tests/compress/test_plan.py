"""The plan: what is protected, what belongs together, and that no more is cut than needed."""

import doctest

from hypothesis import given
from hypothesis import strategies as st

from compress.rows import agentic, turn
from stemma.compress import extractive, plan, sampling, summary
from stemma.compress.plan import Cut, Protection, Turn, protected, summary_room, units
from stemma.compress.turns import turns_of

SIZES = [10, 10, 10, 10, 40, 60, 40, 60, 10, 10]
ROLES = ["system", "human", "gpt", "tool", "gpt", "tool", "gpt", "tool", "human", "gpt"]


def test_the_worked_examples_hold():
    for module in (plan, extractive, sampling, summary):
        assert doctest.testmod(module).failed == 0


def test_the_example_of_the_docstring_is_right():
    turns = turns_of([turn(role, size) for role, size in zip(ROLES, SIZES, strict=True)])
    last_two = Protection(last_n_turns=2)
    assert plan.plan(turns, SIZES, last_two, excess=60, summary_tokens=30) == (Cut(4, 6),)
    assert plan.plan(turns, SIZES, last_two, excess=160, summary_tokens=30) == (Cut(4, 8),)


def test_a_late_first_tool_turn_is_protected_where_it_stands():
    roles = ["system", "human", "gpt", "human", "gpt", "human", "gpt", "tool", "gpt", "human", "gpt", "human", "gpt"]
    turns = turns_of([turn(role, 50) for role in roles])
    cuts = plan.plan(turns, [50] * len(roles), Protection(last_n_turns=1), excess=10_000, summary_tokens=10)
    assert cuts == (Cut(3, 6), Cut(8, 12)), "what lies on both sides of it can be cut, the call and its result not"


def test_results_stay_with_the_call_they_name_wherever_they_stand():
    call = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}
    late = {"role": "tool", "tool_call_id": "a", "content": "1"}
    items = [call, {"role": "assistant", "content": "thinking"}, late, {"role": "user", "content": "?"}]
    assert units(turns_of(items)) == [range(3), range(3, 4)]


def test_a_system_turn_that_is_not_protected_may_go():
    turns = turns_of(agentic(2))
    assert 0 in protected(turns, Protection())
    assert 0 not in protected(turns, Protection(first_system=False))


@given(
    shape=st.lists(st.tuples(st.sampled_from(["human", "gpt", "tool"]), st.integers(0, 100)), max_size=25),
    excess=st.integers(1, 1500),
    summary_tokens=st.integers(1, 200),
    last=st.integers(0, 5),
)
def test_no_unit_is_cut_that_was_not_needed(shape, excess, summary_tokens, last):
    turns = turns_of([turn(role, size) for role, size in shape])
    tokens = [size for _, size in shape]
    cuts = plan.plan(turns, tokens, Protection(last_n_turns=last), excess=excess, summary_tokens=summary_tokens)

    def saved(parts):
        sizes = [sum(tokens[cut.start : cut.stop]) for cut in parts]
        return sum(size - summary_room(size, summary_tokens) for size in sizes)

    if cuts:
        final = next(unit for unit in units(turns) if unit.stop == cuts[-1].stop)
        less = [*cuts[:-1], Cut(cuts[-1].start, final.start)]
        assert saved(less) < excess


def test_units_of_odd_orders_cover_every_turn_once():
    turns = [Turn("tool", ""), Turn("gpt", ""), Turn("human", ""), Turn("tool", "", 1), Turn("tool", "", 1)]
    assert [i for unit in units(turns) for i in unit] == list(range(5))
    assert units(turns) == [range(1), range(1, 5)]
