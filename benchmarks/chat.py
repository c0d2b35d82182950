"""The figures of the command line: how long one waits for help, and for an answer that needs one tool.

    python benchmarks/chat.py             seven runs of each
    python benchmarks/chat.py --json      for programs

Each run is a fresh process, as a user starts it, and the kinds take turns, so that a busy machine disturbs all alike.
The endpoint is a process of its own on 127.0.0.1 that answers at once: first with a call of `read_file`, then with a
text. The bare figures are what Python itself needs to start, and to import aiohttp, without which nobody speaks HTTP
here. Exit code 1: a bound was missed.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from measure import Figure, Values, report

RUNS = 7

FIGURES = [
    Figure("stemma --help", "help.wall", "s", "≤", 0.3),
    Figure("stemma chat -p, one tool turn over HTTP", "chat.wall", "s", "≤", 0.8),
    Figure("  processor time", "chat.cpu", "s"),
    Figure("  over `import aiohttp`", "chat.over_aiohttp", "×"),
    Figure('bare python -c "pass"', "python.wall", "s"),
    Figure('bare python -c "import aiohttp"', "aiohttp.wall", "s"),
]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.serve:
        asyncio.run(serve())
        return 0
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        try:
            measured = measure(port)
        finally:
            server.terminate()
    return 0 if report(FIGURES, measured, as_json=wanted.json) else 1


def measure(port: int) -> Values:
    """The median of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "notes.txt").write_text("the key is under the mat\n")
        kinds = commands(port)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for _ in range(RUNS + 1):
            for name, command in kinds.items():
                taken[name].append(time_of(command, folder))
    found: Values = {}
    for name, runs in taken.items():
        warm = runs[1:]  # the first run compiles the modules
        found[f"{name}.wall"], found[f"{name}.cpu"] = (median(column) for column in zip(*warm, strict=True))
    found["chat.over_aiohttp"] = found["chat.wall"] / found["aiohttp.wall"]
    return found


def commands(port: int) -> dict[str, list[str]]:
    """What is started, by kind."""
    stemma = [sys.executable, "-m", "stemma"]
    chat = ["chat", "-p", "Where is the key?", "-m", "m", "--base-url", f"http://127.0.0.1:{port}/v1"]
    return {
        "python": [sys.executable, "-c", "pass"],
        "aiohttp": [sys.executable, "-c", "import aiohttp"],
        "help": [*stemma, "--help"],
        "chat": [*stemma, *chat, "--toolsets", "file", "--workspace", "."],
    }


def time_of(command: list[str], folder: str) -> tuple[float, float]:
    """Seconds on the wall and in the processor, of a process that must do well."""
    spent, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    wall, now = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert command[3:4] != ["chat"] or done.stdout == "Under the mat.\n", done.stdout
    return wall, now.ru_utime + now.ru_stime - spent.ru_utime - spent.ru_stime


# ── the endpoint ─────────────────────────────────────────────────────────────────────────────────────────────────


def answer(message: dict[str, object], finish: str) -> bytes:
    """A completion as bytes on the wire."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


CALL = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "notes.txt"}'}}
ASKS = answer({"content": None, "tool_calls": [CALL]}, "tool_calls")
SAYS = answer({"content": "Under the mat."}, "stop")


async def serve() -> None:
    """Answer on a free port, which is printed, until ended."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                writer.write(SAYS if b"under the mat" in body else ASKS)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
