"""Distributions: which toolsets a prompt gets, drawn with a recorded seed.

Each toolset of a distribution is in with its own probability, independent of the others; if none is, the likeliest is.
Built-in ones are below; a user's own stand in a YAML file of `name: {toolset: percent}`.

    >>> draw(Distribution("either", {"file": 100, "web": 0}), random.Random(1))
    ['file']

`tests/batch/test_distributions.py` proves it.
"""

import random
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from stemma.errors import StemmaError
from stemma.formats.yaml_files import BadSettings, read_yaml, value_of


class BadDistribution(StemmaError):
    """No such distribution, or a file that holds none."""


class Distribution(msgspec.Struct, frozen=True):
    """Toolsets and how likely each is, in percent."""

    name: str
    percent: dict[str, float]
    about: str = ""


BUILT_IN = {
    one.name: one
    for one in (
        Distribution("default", {"terminal": 100, "file": 100, "web": 100, "todo": 100}, "everything"),
        Distribution("balanced", {"terminal": 50, "file": 50, "web": 50, "todo": 50}, "each with even chance"),
        Distribution("minimal", {"file": 100}, "files only"),
        Distribution("safe", {"file": 80, "todo": 60}, "no commands, no network"),
        Distribution("terminal_only", {"terminal": 100}, "commands only"),
        Distribution("terminal_tasks", {"terminal": 97, "file": 97, "web": 30}, "work on a machine"),
        Distribution("development", {"terminal": 90, "file": 95, "todo": 50, "web": 20}, "write and run code"),
        Distribution("research", {"web": 95, "file": 50, "todo": 40, "terminal": 15}, "find out"),
        Distribution("delegation", {"delegation": 80, "file": 80, "terminal": 60}, "work with subagents"),
        Distribution("mixed_tasks", {"terminal": 70, "file": 80, "web": 50, "todo": 40}, "a bit of everything"),
    )
}


def draw(distribution: Distribution, chance: random.Random) -> list[str]:
    """The toolsets of one prompt."""
    drawn = [name for name, percent in distribution.percent.items() if chance.random() * 100 < percent]
    if drawn or not distribution.percent:
        return drawn
    return [max(distribution.percent, key=lambda name: distribution.percent[name])]


def find_distribution(name: str, file: Path | None = None) -> Distribution:
    """The distribution called `name`: one of the file's, or a built-in one."""
    known = {**BUILT_IN, **(read_distributions(file) if file else {})}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
    raise BadDistribution(f"there is no distribution {name!r}; {hint}")


def read_distributions(file: Path) -> dict[str, Distribution]:
    """A user's own distributions."""
    try:
        tree = read_yaml(file.read_text(encoding="utf-8"), str(file))
        given = value_of(tree, str(file)) if tree is not None else None
    except (OSError, BadSettings, UnicodeError) as problem:
        raise BadDistribution(f"cannot read distributions from {file}: {problem}") from problem
    if not isinstance(given, Mapping):
        raise BadDistribution(f"{file} is no mapping of names to toolsets with their percentages")
    return {str(name): _distribution(str(name), percents, file) for name, percents in given.items()}


def _distribution(name: str, percents: Any, file: Path) -> Distribution:
    if not isinstance(percents, Mapping) or not percents:
        raise BadDistribution(f"{file}: {name!r} is no mapping of toolsets to percentages")
    for toolset, percent in percents.items():
        if type(percent) not in (int, float) or not 0 <= percent <= 100:
            raise BadDistribution(f"{file}: {name!r}: {toolset!r} has {percent!r}, which is no percentage")
    return Distribution(name, {str(toolset): float(percent) for toolset, percent in percents.items()})
