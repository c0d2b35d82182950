"""Real runs of `stemma batch` with helpers: the command, its endpoint, and its processes as the system knows them."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

from batches import bytes_of, lines_of, records_of
from stemma import open_store
from store.child import ENV

EAGER = Path(__file__).parent / "batch" / "eager.py"
SCRIPTED_AGENT = Path(__file__).parents[1] / "benchmarks" / "agent_endpoint.py"

Reply = Callable[[dict[str, Any]], dict[str, Any]]
"""A request's next message."""


class Endpoint:
    """The model of a small agent, on loopback, in a thread; it knows how many ask at once."""

    def __init__(self, latency: float, reply: Reply | None) -> None:
        spec = spec_from_file_location("agent_endpoint", SCRIPTED_AGENT)
        self._agent = module_from_spec(spec)
        spec.loader.exec_module(self._agent)
        self._agent.reply = reply or self._agent.reply
        self.latency, self.now, self.most, self.asked = latency, 0, 0, 0
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(self._agent.LENGTH.search(head)[1]))
                self.asked, self.now = self.asked + 1, self.now + 1
                self.most = max(self.most, self.now)
                await asyncio.sleep(self.latency)
                self.now -= 1  # before the answer is out: who has it may ask again at once
                writer.write(self._agent.completion(json.loads(body)))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def endpoint(latency: float = 0.0, reply: Reply | None = None) -> Iterator[Endpoint]:
    """An endpoint until the block ends; it reads a file and answers, or replies as it is told."""
    made, ready, over = Endpoint(latency, reply), threading.Event(), threading.Event()

    async def serve() -> None:
        server = await asyncio.start_server(made, "127.0.0.1", 0, backlog=1024, limit=1 << 24)
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await asyncio.to_thread(over.wait)
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield made
    finally:
        over.set()
        thread.join()


def write_prompts(home: Path, number: int) -> Path:
    """A file of prompts, each with a file to read."""
    home.mkdir(exist_ok=True)
    path = home / "prompts.jsonl"
    rows = [{"prompt": f"What is in note {i}?", "files": {"notes.txt": f"note {i}"}} for i in range(number)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def start_batch(
    home: Path, url: str, *more: str, program: tuple[str, ...] = (str(EAGER),), temporary: Path | None = None
) -> "subprocess.Popen[str]":
    """The command over the prompts of a folder, running, as the leader of a process group."""
    command = [sys.executable, *program, "batch", str(home / "prompts.jsonl"), "-m", "m", "--base-url", url]
    command += ["--toolsets", "read_file", "--name", "r", "--display", "json", "--batch-size", "20", *more]
    env = ENV | {"HOME": str(home), "TMPDIR": str(temporary or home), "OPENAI_API_KEY": "none"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=home, env=env, text=True, start_new_session=True, **pipes)


def end(process: "subprocess.Popen[str]") -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, what it said, and its complaints."""
    out, err = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


def until(found: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What is found, as soon as it is something."""
    deadline = time.monotonic() + seconds
    while not (what := found()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)
    return what


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────


class Process(NamedTuple):
    """A process that is alive."""

    id: int
    parent: int
    group: int


def processes() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                state, parent, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if state != "Z":
                    yield Process(int(entry.name), int(parent), int(its_group))


def children(parent: int) -> list[int]:
    return [process.id for process in processes() if process.parent == parent]


def group(leader: int) -> list[int]:
    return [process.id for process in processes() if process.group == leader]


def helpers(chief: int) -> list[int]:
    """The helpers of a run: children of the process that it has in reserve."""
    return [helper for reserve in children(chief) for helper in children(reserve)]


# ── what a run left ──────────────────────────────────────────────────────────────────────────────────────────────


def assert_all_done_once(home: Path, prompts: int) -> None:
    """Every task has ended, every call is there once, all files say it, and no working folder is left."""
    records = records_of(home / "runs", "r")
    assert len(records) == prompts
    with open_store(home / "runs" / "r" / "stemma.db", create=False) as store:
        assert store.verify() == []
        for name, record in records.items():
            assert record.status == "completed"
            assert len(store.load(name).calls()) == record.api_calls == record.tools["read_file"].count + 1
    entries = lines_of(home / "runs" / "r" / "trajectories.jsonl")
    assert [entry["prompt_index"] for entry in entries] == list(range(prompts))
    assert not list(home.glob("stemma-run-*"))


def rebuilt(home: Path) -> dict[str, bytes]:
    """The files of a run, made again from its store by the command."""
    command = [sys.executable, str(EAGER), "batch", "--rebuild", "r"]
    subprocess.run(command, cwd=home, env=ENV | {"HOME": str(home)}, check=True, capture_output=True)
    return bytes_of(home / "runs" / "r")
