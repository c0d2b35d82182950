"""How a figure is measured, compared with its bound, and shown."""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

Values = dict[str, float]
"""What one measurement found, by key."""

Measurement = Callable[[int], Values]
"""Takes how many times smaller than the whole to measure."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    name: str
    source: str
    """`measurement.key`."""
    unit: str = "s"
    sense: Literal["≤", "≥", ""] = ""
    """Empty: told, not judged."""
    bound: float = 0.0

    def met(self, measured: float) -> bool:
        """Whether the bound is kept."""
        return {"≤": measured <= self.bound, "≥": measured >= self.bound, "": True}[self.sense]


@dataclass(slots=True)
class Stopwatch:
    """How long a `timed` block took."""

    seconds: float = 0.0
    """By the clock on the wall."""
    busy: float = 0.0
    """In the processor, all threads together: what a crowded machine and a slow disk do not add to."""


@contextmanager
def timed() -> Iterator[Stopwatch]:
    """Measure a block."""
    watch, wall, busy = Stopwatch(), time.perf_counter(), time.process_time()
    yield watch
    watch.seconds, watch.busy = time.perf_counter() - wall, time.process_time() - busy


def both(**watches: Stopwatch) -> Values:
    """The seconds of each watch under its name, and its busy ones under `name_busy`."""
    busy = {f"{name}_busy": watch.busy for name, watch in watches.items()}
    return {**{name: watch.seconds for name, watch in watches.items()}, **busy}


def peak_mib(who: int = resource.RUSAGE_SELF) -> float:
    """The most memory this process ever had, or the largest of its children that have ended."""
    peak = resource.getrusage(who).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def in_child(script: str, name: str, scale: int, repeats: int) -> Values:
    """Measure `name` in fresh processes, one after another; the median of each value."""
    command = [sys.executable, script, "--measure", name, "--scale", str(scale)]
    runs = []
    for _ in range(repeats):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def report(figures: list[Figure], measured: Values, *, as_json: bool) -> bool:
    """Print all figures; True if every bound is kept."""
    if as_json:
        rows = [_row(figure, measured) for figure in figures]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        _print_table(figures, measured)
    return all(figure.met(measured[figure.source]) for figure in figures)


def _row(figure: Figure, measured: Values) -> dict[str, object]:
    value, busy = measured[figure.source], measured.get(f"{figure.source}_busy")
    return {**asdict(figure), "measured": value, "busy": busy, "ok": figure.met(value)}


def _print_table(figures: list[Figure], measured: Values) -> None:
    widest = max(len(figure.name) for figure in figures)
    print(f"{'figure':{widest}}  {'measured':>14}  {'processor':>10}  {'bound':>15}")
    for figure in figures:
        value, busy = measured[figure.source], measured.get(f"{figure.source}_busy")
        shown = f"{_number(value)} {figure.unit}"
        bound = f"{figure.sense} {_number(figure.bound)} {figure.unit}" if figure.sense else ""
        verdict = "" if not figure.sense else "ok" if figure.met(value) else "MISSED"
        spent = "" if busy is None else f"{_number(busy)} s"
        print(f"{figure.name:{widest}}  {shown:>14}  {spent:>10}  {bound:>15}  {verdict}".rstrip())


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
