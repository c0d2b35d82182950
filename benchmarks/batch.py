"""The figures of the batch runner, beside a bare client and, if it is installed, the incumbent.

    python benchmarks/batch.py                        ours and the bare client, in about two minutes
    python benchmarks/batch.py --incumbent PYTHON     the incumbent's runner, too: PYTHON has hermes-agent
    python benchmarks/batch.py --quick

The endpoint (`agent_endpoint.py`) is a process of its own: every prompt takes two or three `read_file` turns and an
answer. Ours is the whole command `stemma batch` with tools, working folders, durable storage and all files. The bare
client is an asyncio loop over aiohttp that runs no tools and stores nothing: a bound, not a competitor. Each runs in a
fresh process, its start and its helpers included. With instant replies they run five times in turns, and the turn with
the middle ratio counts: a machine that is slow for a moment is so for both. Exit code 1: a bound was missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import Figure, Values, report

HERE = Path(__file__).parent
NOTE = "The cellar holds twelve barrels, of which three are empty. " * 4

FIGURES = [
    Figure("instant replies: bare client / ours, prompts a second", "instant.bare_ratio", "×", "≤", 3),
    Figure("  ours", "instant.ours", "/s"),
    Figure("  bare client", "instant.bare", "/s"),
    Figure("  ours / the incumbent", "instant.incumbent_ratio", "×", "≥", 100),
    Figure("  the incumbent", "instant.incumbent", "/s"),
    Figure("1 s a reply, 200 at once: our wall time / bare client's", "slow.ratio", "×", "≤", 1.5),
    Figure("  ours", "slow.ours", "s"),
    Figure("  bare client", "slow.bare", "s"),
    Figure("1,000 conversations in flight: peak memory of all processes", "crowd.mib", "MiB", "≤", 250),
    Figure("20,000 prompts: processor time a prompt / at 1,000", "growth.cost", "×", "≤", 1.2),
    Figure("  peak memory / at 1,000", "growth.memory", "×", "≤", 1.5),
    Figure("  at 1,000, processor time a prompt", "growth.small_ms", "ms"),
]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the prompts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--incumbent", metavar="PYTHON", help="a Python that has hermes-agent")
    parser.add_argument("--bare", nargs=3, metavar=("N", "C", "PORT"), help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.bare:
        return bare_client(*map(int, wanted.bare))
    measured = measure(5 if wanted.quick else 1, wanted.incumbent)
    figures = [figure for figure in FIGURES if figure.source in measured]
    return 0 if report(figures, measured, as_json=wanted.json) else 1


def measure(scale: int, incumbent: str | None) -> Values:
    """All figures."""
    measured: Values = {}
    prompts = 1000 // scale
    with endpoint(0.0) as port:
        turns = [(run_ours(prompts, 64, port), run_bare(prompts, 64, port)) for _ in range(5)]
        ours, bare = sorted(turns, key=lambda turn: turn[0].wall / turn[1].wall)[len(turns) // 2]
        measured |= {
            "instant.ours": prompts / ours.wall,
            "instant.bare": prompts / bare.wall,
            "instant.bare_ratio": ours.wall / bare.wall,
        }
        if incumbent:
            theirs = run_incumbent(incumbent, 40, port)
            measured |= {
                "instant.incumbent": 40 / theirs.wall,
                "instant.incumbent_ratio": (prompts / ours.wall) / (40 / theirs.wall),
            }
        large = run_ours(20 * prompts, 64, port)
        measured |= {
            "growth.cost": (large.cpu / 20) / ours.cpu,
            "growth.memory": large.mib / ours.mib,
            "growth.small_ms": ours.cpu / prompts * 1e3,
        }
    with endpoint(1.0) as port:
        slow, bare_slow = run_ours(200, 200, port), run_bare(200, 200, port)
        measured |= {"slow.ours": slow.wall, "slow.bare": bare_slow.wall, "slow.ratio": slow.wall / bare_slow.wall}
        measured["crowd.mib"] = run_ours(1000, 1000, port).mib
    return measured


class Spent:
    """What a process took."""

    def __init__(self, wall: float, cpu: float, mib: float) -> None:
        self.wall, self.cpu, self.mib = wall, cpu, mib


@contextmanager
def endpoint(latency: float) -> Iterator[int]:
    """The endpoint's port while it runs."""
    command = [sys.executable, str(HERE / "agent_endpoint.py"), "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.stdin.close()


def spent(command: list[str], folder: str, environment: dict[str, str] | None = None) -> Spent:
    """Run a command to its end."""
    begun = time.perf_counter()
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    settings = {**os.environ, **(environment or {})}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed, where no start compiles anything
    process = subprocess.Popen(command, cwd=folder, env=settings, start_new_session=True, **pipes)
    assert process.stderr is not None
    with peak_of_group(process.pid) as together:
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)  # the time of helpers is in it, their memory is not
        wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}: {said.decode(errors='replace')[-2000:]}")
    mib = max(usage.ru_maxrss / 1024, *together)
    return Spent(wall, usage.ru_utime + usage.ru_stime, mib)


@contextmanager
def peak_of_group(leader: int) -> Iterator[list[float]]:
    """The memory of a process group in MiB, looked at once a second; what processes share counts once."""
    found, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(1.0):
            found.append(sum(_memory(entry, leader) for entry in Path("/proc").iterdir() if entry.name.isdigit()))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        over.set()
        looking.join()


def _memory(entry: Path, leader: int) -> float:
    try:
        if int((entry / "stat").read_text().rpartition(")")[2].split()[2]) != leader:
            return 0.0
        rollup = (entry / "smaps_rollup").read_text()
    except OSError:  # it has ended meanwhile
        return 0.0
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024


def run_ours(prompts: int, at_once: int, port: int) -> Spent:
    """The whole command."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "prompts.jsonl"
        with rows.open("w") as file:
            for i in range(prompts):
                file.write(json.dumps({"prompt": f"What is in note {i}?", "files": {"notes.txt": NOTE}}) + "\n")
        command = [sys.executable, "-m", "stemma", "batch", str(rows), "-m", "m", "-c", str(at_once)]
        command += ["--base-url", f"http://127.0.0.1:{port}/v1", "--toolsets", "read_file", "--display", "none"]
        return spent(command, folder)


def run_bare(prompts: int, at_once: int, port: int) -> Spent:
    """The client one writes in ten lines."""
    with tempfile.TemporaryDirectory() as folder:
        script = str(Path(__file__).resolve())
        return spent([sys.executable, script, "--bare", str(prompts), str(at_once), str(port)], folder)


def bare_client(prompts: int, at_once: int, port: int) -> int:
    """Ask until there is an answer; tools are not run, nothing is kept."""
    import asyncio

    import aiohttp

    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    function = {"name": "read_file", "description": "Read a file.", "parameters": parameters}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"

    async def converse(session: aiohttp.ClientSession, number: int, turn: asyncio.Semaphore) -> None:
        messages = [{"role": "user", "content": f"What is in note {number}?"}]
        async with turn:
            while True:
                body = {"model": "m", "messages": messages, "tools": [{"type": "function", "function": function}]}
                async with session.post(url, json=body) as response:
                    message = (await response.json())["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    return
                messages += [
                    {"role": "tool", "tool_call_id": call["id"], "content": NOTE} for call in message["tool_calls"]
                ]

    async def run() -> None:
        turn = asyncio.Semaphore(at_once)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(converse(session, i, turn) for i in range(prompts)))

    asyncio.run(run())
    return 0


def run_incumbent(python: str, prompts: int, port: int) -> Spent:
    """Its batch runner on the same endpoint, with four workers."""
    found = subprocess.run([python, "-c", "import batch_runner; print(batch_runner.__file__)"], **_QUIET)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "notes.txt").write_text(NOTE)
        rows = Path(folder) / "prompts.jsonl"
        rows.write_text("".join(json.dumps({"prompt": f"What is in note {i}?"}) + "\n" for i in range(prompts)))
        command = [python, found.stdout.strip().splitlines()[-1], f"--dataset_file={rows}", "--batch_size=10"]
        command += ["--run_name=r", "--model=m", f"--base_url=http://127.0.0.1:{port}/v1", "--api_key=none"]
        command += ["--num_workers=4", "--distribution=minimal"]
        return spent(command, folder, {"HOME": folder, "TERMINAL_CWD": folder})


_QUIET = {"capture_output": True, "text": True, "check": True}

if __name__ == "__main__":
    sys.exit(main())
