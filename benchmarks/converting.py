"""One side of the race to Hermes rows: `python converting.py ours|incumbent FILE`, in that side's own environment.

FILE holds the tools in its first line and then one conversation a line. For each number on standard input that many
conversations are converted; out comes a line of JSON with the processor's seconds spent converting, and a hash of each
row. Reading, hashing and printing are outside the clock. Conversations come and go one by one, as when a file is
written: rows that pile up would measure how fast the system hands out memory.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from types import MethodType
from typing import Any

Convert = Callable[[list[dict[str, Any]]], list[dict[str, str]]]


def ours(tools: list[dict[str, Any]]) -> Convert:
    """The converter of stemma."""
    from stemma.formats.hermes import to_trajectory

    return lambda messages: to_trajectory(messages, tools)


def incumbent(tools: list[dict[str, Any]]) -> Convert:
    """The converter of hermes-agent, with as much of an agent as it asks for."""
    import run_agent
    from agent.agent_runtime_helpers import convert_to_trajectory_format

    class Agent:
        verbose_logging, log_prefix = False, ""

        def __getattr__(self, name: str) -> Any:
            return MethodType(getattr(run_agent.AIAgent, name), self)

    agent = Agent()
    agent.tools = tools
    return lambda messages: convert_to_trajectory_format(agent, messages, messages[0]["content"], True)


def main() -> None:
    """Answer each number with a batch."""
    side, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        convert = {"ours": ours, "incumbent": incumbent}[side](json.loads(next(file)))
        for asked in sys.stdin:
            print(json.dumps(_batch(convert, islice(file, int(asked)))), flush=True)


def _batch(convert: Convert, lines: Iterable[str]) -> dict[str, Any]:
    seconds, rows = 0.0, []
    for line in lines:
        messages = json.loads(line)
        start = time.process_time()
        row = convert(messages)
        seconds += time.process_time() - start
        rows.append(_hash(row))
    return {"seconds": seconds, "rows": rows}


def _hash(row: list[dict[str, str]]) -> str:
    return hashlib.sha256(json.dumps(row, ensure_ascii=False).encode()).hexdigest()


if __name__ == "__main__":
    main()
