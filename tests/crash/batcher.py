"""Runs a small batch and says so after each task, until it is done or killed. Run by the tests in this folder.

    python batcher.py FOLDER TASKS CONCURRENCY SLOW   prints `ended NAME STATUS`, then `done` or `refused ERROR TEXT`

The run stands in FOLDER/r. Every question to the model is a line in FOLDER/asked, which no kill takes back. The clock
stands still, so that two runs that did the same leave the same bytes. SLOW is how many seconds the model thinks.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from batches import adder, adding_agent
from stemma.batch.batch import Batch, run_batch
from stemma.errors import StemmaError
from stemma.models.protocol import Request
from stemma.models.scripted import ScriptedModel


def rows(number: int) -> list[dict[str, Any]]:
    """Prompts of all kinds: equal ones, some of two turns, some with a file."""
    made: list[dict[str, Any]] = []
    for i in range(number):
        prompt: Any = "the same" if i % 5 == 4 else f"prompt {i}"
        row = {"prompt": [prompt, f"and {i}"] if i % 7 == 6 else prompt}
        made.append(row | ({"files": {"a.txt": "hello"}} if i % 6 == 5 else {}) | {"level": "easy"})
    return made


def batch_in(folder: Path, tasks: int, concurrency: int, slow: float = 0.0) -> Batch:
    """The batch that stands in a folder."""

    async def answer(request: Request) -> dict[str, Any]:
        with (folder / "asked").open("ab", buffering=0) as asked:
            asked.write(b"one more\n")
        await asyncio.sleep(slow)
        return adder(request)

    return run_batch(
        rows(tasks),
        agent=adding_agent(ScriptedModel(answer)),
        name="r",
        folder=folder,
        concurrency=concurrency,
        batch_size=6,
        clock=lambda: 0.0,
        now=lambda: 0.0,
    )


def main(folder: Path, tasks: int, concurrency: int, slow: float) -> None:
    try:
        for result in batch_in(folder, tasks, concurrency, slow):
            say(f"ended {result.record.name} {result.record.status}")
    except (StemmaError, OSError) as problem:
        say(f"refused {type(problem).__name__} {problem}")
    else:
        say("done")


def say(line: str) -> None:
    """One line in one write: it is out, or it is not."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
