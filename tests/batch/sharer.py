"""Runs a batch in a process of its own beside others. Run by `tests/batch/test_processes.py`.

python sharer.py FOLDER NAME TASKS    waits for a line of input, then prints the name of each task it ended
"""

import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from batches import adder, adding_agent
from stemma.batch.batch import run_batch
from stemma.models.scripted import ScriptedModel


async def slow_adder(request):
    await asyncio.sleep(0.005)
    return adder(request)


def main(folder: str, name: str, tasks: int) -> None:
    sys.stdin.readline()
    agent = adding_agent(ScriptedModel(slow_adder))
    rows = [f"prompt {i // 7}" for i in range(tasks)]
    for result in run_batch(rows, agent=agent, name=name, folder=folder, concurrency=2, batch_size=5):
        print(result.record.name, result.record.status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
