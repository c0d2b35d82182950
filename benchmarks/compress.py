"""The figures of compression, all of them in one run.

    python benchmarks/compress.py --incumbent /tmp/hermes/bin/python     everything, in about five minutes
    python benchmarks/compress.py                  without the incumbent, whose figures are then left out
    python benchmarks/compress.py --quick          ten times fewer rows
    python benchmarks/compress.py --only counting
    python benchmarks/compress.py --json           for programs

--incumbent is the Python of an environment with `pip install hermes-agent transformers`. Both sides compress the same
trajectories with the same tokenizer, which is trained here on the same text, and the same scripted endpoint, each in a
process of its own and one after the other. Exit code 1: a bound was missed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from measure import Figure, Measurement, Values, in_child, report, timed
from stemma.formats.jsonl import to_line

FOLDER, INCUMBENT = "STEMMA_BENCH_FOLDER", "STEMMA_BENCH_INCUMBENT"
"""What the processes that measure are told by their environment."""
TARGET = 15_250
SUMMARY = "[CONTEXT SUMMARY]: " + "The assistant read files, ran tests and found that one of them fails. " * 12
_VOCABULARY = 16_000
_SYLLABLES = [*re.findall("..", "bacedifogukaleminopuraretivoxyte"), "file", "path", "err", "run", "get", "set", "def"]


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Text:
    """Words of which a few are frequent and most are rare, as in real text, with some of code between them."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        spell = random.Random(7)
        self._words = ["".join(spell.choices(_SYLLABLES, k=spell.randint(1, 4))) for _ in range(20_000)]
        self._weights = [1 / (rank + 5) for rank in range(len(self._words))]
        self._pool = ""
        self._at = 0

    def take(self, length: int) -> str:
        """`length` characters that were not taken before."""
        if self._at + length > len(self._pool):
            self._pool, self._at = self._more(max(length, 400_000)), 0
        self._at += length
        return self._pool[self._at - length : self._at]

    def _more(self, length: int) -> str:
        words = self._dice.choices(self._words, self._weights, k=length // 4)
        for place in range(0, len(words), 9):
            words[place] += self._dice.choice([".\n", " = ", "(x, 1)", f"[{place * 7919 % 4096}]", '": "', " # "])
        return " ".join(words)


def trajectory(text: Text, steps: int, length: int) -> dict[str, Any]:
    """A task, `steps` calls with results of `length` characters, an answer; everything else in proportion to those."""
    turns = [
        {"from": "system", "value": text.take(length * 3 // 4)},
        {"from": "human", "value": text.take(length // 10)},
    ]
    for _ in range(steps):
        call = json.dumps({"name": "terminal", "arguments": {"command": text.take(length // 50)}})
        thought = f"<think>\n{text.take(length // 10)}\n</think>"
        turns.append({"from": "gpt", "value": f"{thought}\n<tool_call>\n{call}\n</tool_call>"})
        turns.append({"from": "tool", "value": f"<tool_response>\n{text.take(length)}\n</tool_response>"})
    return {"conversations": [*turns, {"from": "gpt", "value": text.take(length // 7)}], "completed": True}


def write_rows(folder: Path, rows: int, steps: int, length: int) -> None:
    """A folder with one file of rows."""
    folder.mkdir()
    text = Text(rows)
    with (folder / "rows.jsonl").open("wb", buffering=1 << 20) as out:
        for _ in range(rows):
            out.write(to_line(trajectory(text, steps, length)))


def tokenizer_folder() -> Path:
    """A byte-level BPE trained on such text, as both sides load it; made once."""
    folder = Path(os.environ[FOLDER]) / "tokenizer"
    if not folder.exists():
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=_VOCABULARY, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator([Text(1).take(100_000) for _ in range(20)], trainer)
        folder.mkdir()
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


# ── measurements ─────────────────────────────────────────────────────────────────────────────────────────────────


def race(scale: int) -> Values:
    """200 trajectories of about 35,000 tokens: ours against the incumbent."""
    folder, rows = Path(os.environ[FOLDER]) / "race", 200 // scale
    write_rows(folder, rows, steps=35, length=4000)
    sides = {"ours": sys.executable, "incumbent": os.environ[INCUMBENT]}
    found: dict[str, list[Values]] = {"ours": [], "incumbent": []}
    with scripted_endpoint() as base_url:
        for side in ("ours", "incumbent", "ours", "ours"):  # ours is short, so that a moment's load would tell
            found[side].append(_side(sides[side], side, folder, TARGET, base_url))
            shutil.rmtree(f"{folder}_{side}")
    rates = {side: rows / statistics.median(run["seconds"] for run in runs) for side, runs in found.items()}
    peaks = {side: max(run["peak"] for run in runs) for side, runs in found.items()}
    return {
        **rates,
        "ratio": rates["ours"] / rates["incumbent"],
        "ours_peak": peaks["ours"],
        "incumbent_peak": peaks["incumbent"],
        "peak_ratio": peaks["ours"] / peaks["incumbent"],
    }


def memory(scale: int) -> Values:
    """The peak for 1,000 rows and for 100,000 of them, each compressed."""
    peaks = {}
    for name, rows in {"few": 1_000, "many": 100_000 // scale}.items():
        folder = Path(os.environ[FOLDER]) / name
        write_rows(folder, rows, steps=8, length=200)
        peaks[name] = _side(sys.executable, "ours", folder, 400)["peak"]
        (folder / "rows.jsonl").unlink()
    return {**peaks, "growth": peaks["many"] / peaks["few"]}


def counting(scale: int) -> Values:
    """The turns of 60 trajectories counted by us and by the bare encoder, in turns."""
    from tokenizers import Tokenizer

    from stemma.compress.counters import open_counter
    from stemma.compress.stream import counted, job

    text = Text(3)
    rows = [trajectory(text, 30, 4000)["conversations"] for _ in range(max(60 // scale, 6))]
    bare = Tokenizer.from_file(str(tokenizer_folder() / "tokenizer.json"))
    spent, tokens = {"ours": 0.0, "bare": 0.0}, {"ours": 0, "bare": 0}

    async def race_turns() -> None:
        counter = await open_counter(str(tokenizer_folder()), hub=Path())
        for start in range(0, len(rows), 6):
            part = rows[start : start + 6]
            with timed() as watch:
                found = await counted([job(turns, None) for turns in part], counter)
            spent["ours"] += watch.seconds
            tokens["ours"] += sum(row.total for row in found)
            texts = [turn["value"] for turns in part for turn in turns]
            with timed() as watch:
                encoded = bare.encode_batch_fast(texts, add_special_tokens=False)
            spent["bare"] += watch.seconds
            tokens["bare"] += sum(map(len, encoded))

    asyncio.run(race_turns())
    rates = {side: tokens[side] / spent[side] for side in spent}
    return {**rates, "ratio": spent["ours"] / spent["bare"], "different": tokens["ours"] - tokens["bare"]}


def _side(python: str, side: str, folder: Path, target: int, base_url: str = "") -> Values:
    script = str(Path(__file__).with_name("compressing.py"))
    arguments = [str(folder), f"{folder}_{side}", str(tokenizer_folder()), str(target), base_url]
    done = subprocess.run(
        [python, script, side, *arguments],
        env={**os.environ, "STEMMA_BENCH_KEY": "none"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: Values = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def scripted_endpoint() -> Iterator[str]:
    """An endpoint on loopback that gives every question the same summary at once."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        message = {"role": "assistant", "content": SUMMARY}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted", "usage": usage}
        return web.json_response({**reply, "choices": [choice]})

    loop, app = asyncio.new_event_loop(), web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    loop.run_until_complete(runner.setup())
    site = web.TCPSite(runner, "127.0.0.1", 0)
    loop.run_until_complete(site.start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(runner.cleanup())
        loop.close()


MEASUREMENTS: dict[str, Measurement] = {"race": race, "memory": memory, "counting": counting}

FIGURES = [
    Figure("200 trajectories of 7 M tokens: faster than the incumbent", "race.ratio", "×", "≥", 5),
    Figure("  ours", "race.ours", "/s"),
    Figure("  the incumbent", "race.incumbent", "/s"),
    Figure("  peak of memory against the incumbent's", "race.peak_ratio", "×", "≤", 0.5),
    Figure("  ours", "race.ours_peak", "MiB"),
    Figure("  the incumbent", "race.incumbent_peak", "MiB"),
    Figure("100,000 rows: peak against that of 1,000", "memory.growth", "×", "≤", 1.3),
    Figure("  peak", "memory.many", "MiB"),
    Figure("counting: time against the bare batch encoder", "counting.ratio", "×", "≤", 1.5),
    Figure("  tokens", "counting.ours", "/s"),
    Figure("  tokens that differ", "counting.different", "", "≤", 0),
]


def main() -> int:
    """Measure, print, judge."""
    wanted = _arguments()
    if wanted.measure:
        print(json.dumps(MEASUREMENTS[wanted.measure](wanted.scale)))
        return 0
    names = [name for name in MEASUREMENTS if name in (wanted.only or MEASUREMENTS)]
    if wanted.incumbent is None and "race" in names:
        names.remove("race")
        print("the race is left out: name the incumbent's Python with --incumbent", file=sys.stderr)
    measured: Values = {}
    with tempfile.TemporaryDirectory(prefix="stemma-bench-") as folder:
        os.environ.update({FOLDER: folder, INCUMBENT: wanted.incumbent or ""})
        for name in names:
            print(f"measuring {name} …", file=sys.stderr)
            found = in_child(__file__, name, 10 if wanted.quick else 1, repeats=1)
            measured.update({f"{name}.{key}": value for key, value in found.items()})
    if wanted.quick and not wanted.json:
        print("quick: ten times fewer rows than the figures say; bounds as for the whole")
    figures = [figure for figure in FIGURES if figure.source in measured]
    return 0 if report(figures, measured, as_json=wanted.json) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten times fewer rows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--incumbent", metavar="PYTHON", help="with hermes-agent and transformers")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
