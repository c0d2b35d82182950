"""Which turns become a summary: a pure decision over roles and token counts.

A turn of the model and the results of its calls are one unit, which is kept or summarised whole. A unit that holds a
protected turn is protected. What is left are runs of units side by side; from the front of the first run as many are
cut as it takes to reach the target, then from the next run. A summary is reckoned with the tokens it may have, and
with at most half of what it replaces.

    turn       system human  gpt  tool   gpt  tool   gpt  tool   human  gpt
    tokens         10    10   10    10    40    60    40    60      10   10     = 260
    protected       ×     ×    ×     ×                            last_n_turns=2: × ×

    target 200, summary 30     → turns 4…6 are cut (100 tokens become 30)
    target 100, summary 30     → turns 4…8 are cut (200 become 30)

`tests/compress/test_plan.py` holds it to this, and `tests/compress/test_guarantees.py` ten thousand random ones.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """What the plan and a summariser see of a turn, whatever the format it came in."""

    role: str
    """system, human, gpt or tool; others are possible, and are nothing special."""
    text: str
    """All of it that costs tokens."""
    answers: int | None = None
    """For a result: the place of the turn whose call it answers."""


class Protection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which turns stay as they are."""

    first_system: bool = True
    first_human: bool = True
    first_gpt: bool = True
    first_tool: bool = True
    last_n_turns: int = 4


class Cut(msgspec.Struct, frozen=True):
    """`turns[start:stop]` is to become a summary."""

    start: int
    stop: int


def plan(
    turns: Sequence[Turn], tokens: Sequence[int], protection: Protection, *, excess: int, summary_tokens: int
) -> tuple[Cut, ...]:
    """The fewest cuts from the front that save `excess` tokens; all there are if they do not suffice."""
    cuts: list[Cut] = []
    for run in _runs(turns, protection):
        if excess <= 0:
            break
        cut, saved = _cut_from(run, tokens, excess, summary_tokens)
        if saved > 0:
            cuts.append(cut)
            excess -= saved
    return tuple(cuts)


def summary_room(replaced: int, summary_tokens: int) -> int:
    """How many tokens the summary of `replaced` tokens may have."""
    return min(summary_tokens, replaced // 2)


def _cut_from(run: Sequence[range], tokens: Sequence[int], excess: int, summary_tokens: int) -> tuple[Cut, int]:
    """The least of the run's front that saves enough, and what it saves."""
    replaced = saved = 0
    stop = run[0].start
    for unit in run:
        replaced += sum(tokens[i] for i in unit)
        stop, saved = unit.stop, replaced - summary_room(replaced, summary_tokens)
        if saved >= excess:
            break
    return Cut(run[0].start, stop), saved


def _runs(turns: Sequence[Turn], protection: Protection) -> Iterator[list[range]]:
    """The units that may be cut, those side by side together."""
    kept = protected(turns, protection)
    run: list[range] = []
    for unit in units(turns):
        if kept.isdisjoint(unit):
            run.append(unit)
        elif run:
            yield run
            run = []
    if run:
        yield run


def protected(turns: Sequence[Turn], protection: Protection) -> set[int]:
    """The places of the turns that must stay: the first of each role that is asked for, and the last ones."""
    first = {role: next((i for i, turn in enumerate(turns) if turn.role == role), None) for role in _first(protection)}
    last = range(max(0, len(turns) - protection.last_n_turns), len(turns))
    return {i for i in first.values() if i is not None} | set(last)


def _first(protection: Protection) -> Iterable[str]:
    wanted = {
        "system": protection.first_system,
        "human": protection.first_human,
        "gpt": protection.first_gpt,
        "tool": protection.first_tool,
    }
    return (role for role, keep in wanted.items() if keep)


def units(turns: Sequence[Turn]) -> list[range]:
    """The turns in stretches that must not be parted: from each call to the last of its results.

    >>> units([Turn("gpt", ""), Turn("tool", "", 0), Turn("tool", "", 0), Turn("human", "")])
    [range(0, 3), range(3, 4)]
    """
    found: list[range] = []
    for i, turn in enumerate(turns):
        start = i if turn.answers is None else min(i, turn.answers)
        while found and found[-1].stop > start:
            start = min(start, found.pop().start)
        found.append(range(start, i + 1))
    return found
