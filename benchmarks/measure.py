"""How a figure is measured, compared with its bound, and shown."""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
    """Seconds between the start and the end of a `timed` block."""

    seconds: float = 0.0


@contextmanager
def timed(clock: Callable[[], float] = time.perf_counter) -> Iterator[Stopwatch]:
    """Measure a block by the clock on the wall."""
    watch, start = Stopwatch(), clock()
    yield watch
    watch.seconds = clock() - start


def computing() -> AbstractContextManager[Stopwatch]:
    """Measure a block that waits for nothing by the processor's clock, which a busy neighbour does not stop."""
    return timed(time.process_time)


def peak_mib() -> float:
    """The most memory this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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
    verdicts = [(figure, measured[figure.source], figure.met(measured[figure.source])) for figure in figures]
    if as_json:
        rows = [{**asdict(figure), "measured": value, "ok": ok} for figure, value, ok in verdicts]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        _print_table(verdicts)
    return all(ok for _, _, ok in verdicts)


def _print_table(verdicts: list[tuple[Figure, float, bool]]) -> None:
    widest = max(len(figure.name) for figure, _, _ in verdicts)
    print(f"{'figure':{widest}}  {'measured':>14}  {'bound':>15}")
    for figure, value, ok in verdicts:
        bound = f"{figure.sense} {_number(figure.bound)} {figure.unit}" if figure.sense else ""
        verdict = "" if not figure.sense else "ok" if ok else "MISSED"
        print(f"{figure.name:{widest}}  {_number(value) + ' ' + figure.unit:>14}  {bound:>15}  {verdict}".rstrip())


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
