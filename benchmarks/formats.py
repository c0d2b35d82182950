"""The figures of conversion, export and import, all of them in one run.

    python benchmarks/formats.py --incumbent /tmp/hermes/bin/python     everything, in about five minutes
    python benchmarks/formats.py                    without the incumbent, whose figures are then left out
    python benchmarks/formats.py --quick            ten times fewer conversations and megabytes
    python benchmarks/formats.py --size-mb 200      another size of the file that is imported and exported again
    python benchmarks/formats.py --only import_big export_big
    python benchmarks/formats.py --json             for programs

--incumbent is the Python of an environment with `pip install hermes-agent`. Both sides convert the same conversations
in turns, batch by batch, each in a process of its own, so that a busy machine disturbs both alike; the processor's time
is compared, and a hash of every row. Imports and exports are the commands themselves, each in a process of its own, so
that its peak of memory is its own; their files lie in a temporary folder. Exit code 1: a bound was missed.
"""

import argparse
import contextlib
import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conversations import TOOLS, text
from measure import Figure, Measurement, Stopwatch, Values, in_child, peak_mib, report, timed
from stemma.formats.hermes import to_trajectory
from stemma.formats.jsonl import to_line

FOLDER, SIZE, INCUMBENT = "STEMMA_BENCH_FOLDER", "STEMMA_BENCH_MB", "STEMMA_BENCH_INCUMBENT"
"""What the processes that measure are told by their environment."""
BATCH = 250

Messages = list[dict[str, Any]]
Text = Callable[[int, int], str]
"""From a number and a length."""

_WORDS = 'the of to in file test run error value line reads\n then first path model "token" tool failed def return'
_ENGLISH = " ".join(random.Random(7).choices(_WORDS.split(" "), k=40_000))


# ── conversations ────────────────────────────────────────────────────────────────────────────────────────────────


def english(number: int, length: int) -> str:
    """`length` characters of ASCII that no other `number` has, with line breaks and quotes as in a tool's output."""
    start = number * 7919 % (len(_ENGLISH) - length)
    return f"{number} {_ENGLISH[start : start + length]}"[:length]


def tool_turns(number: int, turns: int, length: Callable[[], int], text: Text = english) -> Messages:
    """A question, `turns` calls with their results, a question and the answer; no two messages alike."""
    messages: Messages = [{"role": "user", "content": text(number, 600)}]
    for turn in range(turns):
        messages += _tool_turn(number * 100 + turn, length(), text)
    messages.append({"role": "user", "content": text(number + 1, 300)})
    messages.append({"role": "assistant", "content": text(number + 2, 800), "reasoning": text(number + 3, 600)})
    return messages


def _tool_turn(number: int, length: int, text: Text) -> Messages:
    call_id = f"call_{number:08x}"
    arguments = json.dumps({"path": text(number, 120), "timeout": number % 300}, ensure_ascii=False)
    call = {"id": call_id, "type": "function", "function": {"name": "terminal", "arguments": arguments}}
    said: dict[str, Any] = {"role": "assistant", "content": text(number, 200) if number % 2 else None}
    if number % 3:
        said["reasoning"] = text(number + 1, 900)
    result = text(number + 2, length)
    if number % 2:
        result = json.dumps({"output": result, "exit_code": 0}, ensure_ascii=False)
    return [{**said, "tool_calls": [call]}, {"role": "tool", "tool_call_id": call_id, "content": result}]


def _write_rows(file: Path, enough: Callable[[int, int], bool], turns: tuple[int, int], length: int) -> None:
    """Hermes rows, until there are `enough` of them or of their bytes."""
    dice, rows, size = random.Random(5), 0, 0
    with file.open("wb", buffering=1 << 20) as out:
        while not enough(rows, size):
            messages = tool_turns(rows, dice.randint(*turns), lambda: dice.randint(length // 3, length * 5 // 3))
            about = {"timestamp": "2026-01-01T00:00:00.000000", "model": "small-instruct-2507", "completed": True}
            size += out.write(to_line({"conversations": to_trajectory(messages, TOOLS), **about}))
            rows += 1


# ── conversion ───────────────────────────────────────────────────────────────────────────────────────────────────


def conversion(scale: int) -> Values:
    """10,000 conversations of 41 messages, tool results of 3 kB: ours against the incumbent's converter."""
    return _convert(10_000 // scale, english)


def conversion_beyond_ascii(scale: int) -> Values:
    """The same with umlauts and Chinese characters in every text, for which strings take twice the memory."""
    return _convert(2_500 // scale, text)


def _convert(count: int, text: Text) -> Values:
    file = Path(os.environ[FOLDER]) / "conversations.jsonl"
    with file.open("w", encoding="utf-8") as out:
        out.write(json.dumps(TOOLS) + "\n")
        for number in range(count):
            out.write(json.dumps(tool_turns(number, 19, lambda: 3000, text), ensure_ascii=False) + "\n")
    try:
        return _race(file, count)
    finally:
        file.unlink()


def _race(file: Path, count: int) -> Values:
    seconds, different = {"ours": 0.0, "incumbent": 0.0}, 0
    pythons = {"ours": sys.executable, "incumbent": os.environ[INCUMBENT]}
    with contextlib.ExitStack() as stack:
        sides = {side: stack.enter_context(_side(python, side, file)) for side, python in pythons.items()}
        for _ in range(count // BATCH):
            answers = {side: _ask(process) for side, process in sides.items()}
            for side, answer in answers.items():
                seconds[side] += answer["seconds"]
            pairs = zip(answers["ours"]["rows"], answers["incumbent"]["rows"], strict=True)
            different += sum(mine != theirs for mine, theirs in pairs)
    rates = {side: count / spent for side, spent in seconds.items()}
    return {**rates, "ratio": rates["ours"] / rates["incumbent"], "different": different}


@contextlib.contextmanager
def _side(python: str, side: str, file: Path) -> Iterator[subprocess.Popen[str]]:
    command = [python, str(Path(__file__).with_name("converting.py")), side, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _ask(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    print(BATCH, file=process.stdin, flush=True)
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


# ── many rows ────────────────────────────────────────────────────────────────────────────────────────────────────


def rows_for_hermes(scale: int) -> Values:
    """100,000 rows of a file, written for `hermes`."""
    return _export_rows(100_000 // scale, "hermes")


def rows_for_trl(scale: int) -> Values:
    """The same for `trl`."""
    return _export_rows(100_000 // scale, "trl")


def _export_rows(count: int, trainer: str) -> Values:
    with tempfile.TemporaryDirectory(dir=os.environ[FOLDER]) as folder:
        source = Path(folder) / "rows.jsonl"
        _write_rows(source, lambda rows, _: rows >= count, turns=(1, 2), length=600)
        found = _export(source, trainer, source.stat().st_size)
        assert found.pop("written") == count
    return found


# ── one big file ─────────────────────────────────────────────────────────────────────────────────────────────────


def import_big(scale: int) -> Values:
    """A file of conversations of 21 to 41 messages, 2 kB each on average, into a store."""
    return _import("big", _megabytes(scale))


def export_big(scale: int) -> Values:
    """That store as Hermes rows."""
    return _export_store("big", _megabytes(scale))


def import_small(scale: int) -> Values:
    """The same with a tenth of the size, for its peak of memory."""
    return _import("small", _megabytes(scale) / 10)


def export_small(scale: int) -> Values:
    """That store as Hermes rows."""
    return _export_store("small", _megabytes(scale) / 10)


def _megabytes(scale: int) -> float:
    return float(os.environ[SIZE]) / scale


def _import(name: str, megabytes: float) -> Values:
    from stemma.cli.import_ import import_

    folder = Path(os.environ[FOLDER])
    source = folder / f"{name}.jsonl"
    _write_rows(source, lambda _, size: size >= megabytes * 1e6, turns=(9, 19), length=3000)
    size = source.stat().st_size
    before = peak_mib()
    with _silently(), timed() as watch:
        import_([source], store=str(folder / f"{name}.db"), as_=None, run=None, json=True)
    stored = (folder / f"{name}.db").stat().st_size
    source.unlink()
    assert peak_mib() > before, "the file was made with more memory than it was imported with"
    return {**_rates(size, watch), "store": stored / size, "helper": peak_mib(resource.RUSAGE_CHILDREN)}


def _export_store(name: str, megabytes: float) -> Values:
    folder = Path(os.environ[FOLDER])
    found = _export(folder / f"{name}.db", "hermes", megabytes * 1e6)
    assert found.pop("written") > 0
    for file in folder.glob(f"{name}.db*"):
        file.unlink()
    return found


def _export(source: Path, trainer: str, size: float) -> Values:
    from stemma.cli.export import export

    with tempfile.TemporaryDirectory(dir=os.environ[FOLDER]) as out:
        with _silently() as said, timed() as watch:
            export(str(source), trainer, Path(out), run=None, allow_markers=False, tokenizer=None, json=True)
        report = json.loads(said.getvalue())
    assert not report["left_out"], report["left_out"]
    return {**_rates(size, watch), "written": report["written"]}


@contextlib.contextmanager
def _silently() -> Iterator[io.StringIO]:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        yield said


def _rates(size: float, watch: Stopwatch) -> Values:
    return {"rate": size / 1e6 / watch.seconds, "busy_rate": size / 1e6 / watch.busy, "peak": peak_mib()}


# ── all of it ────────────────────────────────────────────────────────────────────────────────────────────────────

MEASUREMENTS: dict[str, Measurement] = {
    "conversion": conversion,
    "conversion_beyond_ascii": conversion_beyond_ascii,
    "rows_for_hermes": rows_for_hermes,
    "rows_for_trl": rows_for_trl,
    "import_small": import_small,
    "export_small": export_small,
    "import_big": import_big,
    "export_big": export_big,
}
"""In this order: an export reads the store that the import before it has made."""

FIGURES = [
    Figure("10,000 conversations to Hermes rows: faster than the incumbent", "conversion.ratio", "×", "≥", 3),
    Figure("  rows that differ from the incumbent's", "conversion.different", "", "≤", 0),
    Figure("  ours", "conversion.ours", "/s"),
    Figure("  the incumbent", "conversion.incumbent", "/s"),
    Figure("  2,500 with umlauts and Chinese: faster than the incumbent", "conversion_beyond_ascii.ratio", "×"),
    Figure("    rows that differ", "conversion_beyond_ascii.different", "", "≤", 0),
    Figure("    ours", "conversion_beyond_ascii.ours", "/s"),
    Figure("100,000 rows from a file, for hermes: peak", "rows_for_hermes.peak", "MiB", "≤", 200),
    Figure("  by the clock", "rows_for_hermes.rate", "MB/s"),
    Figure("100,000 rows from a file, for trl: peak", "rows_for_trl.peak", "MiB", "≤", 200),
    Figure("  by the clock", "rows_for_trl.rate", "MB/s"),
    Figure("import of a big file", "import_big.rate", "MB/s", "≥", 25),
    Figure("  by the processor's time, without the process that reads ahead", "import_big.busy_rate", "MB/s"),
    Figure("  peak", "import_big.peak", "MiB"),
    Figure("  peak of the process that reads ahead", "import_big.helper", "MiB"),
    Figure("  peak against a tenth of the file", "import_big.growth", "×", "≤", 1.3),
    Figure("  size of the store against the file's", "import_big.store", "×"),
    Figure("export of that store, for hermes", "export_big.rate", "MB/s", "≥", 25),
    Figure("  by the processor's time", "export_big.busy_rate", "MB/s"),
    Figure("  peak", "export_big.peak", "MiB"),
    Figure("  peak against a tenth of the store", "export_big.growth", "×", "≤", 1.3),
]


def main() -> int:
    """Measure, print, judge."""
    wanted = _arguments()
    if wanted.measure:
        print(json.dumps(MEASUREMENTS[wanted.measure](wanted.scale)))
        return 0
    names = [name for name in MEASUREMENTS if name in (wanted.only or MEASUREMENTS)]
    if wanted.incumbent is None and any(name.startswith("conversion") for name in names):
        names = [name for name in names if not name.startswith("conversion")]
        print("conversion is left out: name the incumbent's Python with --incumbent", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="stemma-bench-") as folder:
        os.environ.update({FOLDER: folder, SIZE: str(wanted.size_mb), INCUMBENT: wanted.incumbent or ""})
        measured = _measure(names, 10 if wanted.quick else 1)
    if wanted.quick and not wanted.json:
        print("quick: ten times fewer conversations and megabytes than the figures say; bounds as for the whole")
    figures = [figure for figure in FIGURES if figure.source in measured]
    return 0 if report(figures, measured, as_json=wanted.json) else 1


def _measure(names: list[str], scale: int) -> Values:
    measured: Values = {}
    for name in names:
        print(f"measuring {name} …", file=sys.stderr)
        found = in_child(__file__, name, scale, repeats=1)
        measured.update({f"{name}.{key}": value for key, value in found.items()})
    for act in ("import", "export"):
        if {f"{act}_big", f"{act}_small"} <= set(names):
            measured[f"{act}_big.growth"] = measured[f"{act}_big.peak"] / measured[f"{act}_small.peak"]
    return measured


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten times fewer conversations and megabytes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--incumbent", metavar="PYTHON", help="the Python of an environment with hermes-agent")
    parser.add_argument("--size-mb", type=float, default=1000, metavar="MB", help="size of the big file")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
