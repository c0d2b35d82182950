"""What must be true of a store after a crash, and how crashes are made."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from stemma import MessageGraph
from stemma.store import SQLiteStore
from store.child import ENV, python

SAVER = Path(__file__).with_name("saver.py")
STRACE = ["strace", "-f", "-qq"]


def needs_strace() -> None:
    """Skip the test where there is no strace, or where it may not trace."""
    if shutil.which("strace") is None:
        pytest.skip("needs the package strace: apt-get install strace")
    tried = subprocess.run([*STRACE, "-o", os.devnull, "-e", "trace=write", "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"the package strace is there, but may not trace here: {tried.stderr.strip()}")


def run_under(options: list[str], command: list[str]) -> tuple[int, str]:
    """Run a command under strace; its return code and what it said. It complains of nothing."""
    env = ENV | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*STRACE, *options, *command], env=env, capture_output=True, text=True, timeout=90)
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


def save_under(options: list[str], path: Path, saves: int, seed: int) -> tuple[int, str]:
    """Run the saver under strace."""
    return run_under(options, python(SAVER, path, saves, seed))


def counted(path: Path, calls: str, saves: int, seed: int) -> Counter[str]:
    """How often a clean run of the saver makes each system call."""
    log = path.with_suffix(".strace")
    code, said = save_under(["-o", str(log), "-e", f"trace={calls}"], path, saves, seed)
    assert (code, said.splitlines()[-1]) == (0, "done")
    return busiest(log)


def busiest(log: Path) -> Counter[str]:
    """How often each system call was made by the thread that made it most, since strace counts each on its own."""
    by_thread = Counter(re.findall(r"^(\d+) +(\w+)\(", log.read_text(), re.MULTILINE))
    found: Counter[str] = Counter()
    for (_, name), times in by_thread.items():
        found[name] = max(found[name], times)
    return found


def spread(most: int, points: int) -> list[int]:
    """Some numbers from 1 to `most`, or all of them."""
    return sorted({1 + i * (most - 1) // max(points - 1, 1) for i in range(points)}) if most else []


def acknowledged(said: str) -> dict[str, int]:
    """The last number of messages that each conversation was said to be saved with; a torn line says nothing."""
    return {name: int(n) for name, n in re.findall(r"^saved (\S+) (\d+)\n", said, re.MULTILINE)}


def assert_sound(path: Path, acknowledged: dict[str, int]) -> None:
    """All that was acknowledged is there, all that is there is whole, and the store goes on."""
    with SQLiteStore(path) as store:
        assert store.verify() == []
        infos = {info.name: info for info in store.graphs()}
        for name, least in acknowledged.items():
            assert infos[name].messages >= least, name
        for name, info in infos.items():
            graph = store.load(name)
            assert_whole(graph, name)
            assert info.metadata == {"messages": len(graph)}
        graph = MessageGraph([{"role": "user", "content": "life goes on"}])
        store.save(graph, name=f"after {len(infos)}", metadata={"messages": 1})
        assert store.verify() == []
        assert store.load(f"after {len(infos)}") == graph


def assert_whole(graph: MessageGraph, name: str) -> None:
    """A conversation of the saver's, as it was after one of its turns."""
    if name.startswith("after "):
        return
    for line in graph.lines()[: len(graph.versions) + 1]:
        for place, message in enumerate(line):
            assert message["content"].split()[:2] == [name, str(place)]
    assert graph[-1]["role"] in ("assistant", "tool")
    assert [call.call.params["n"] for call in graph.calls()] == [
        place for place, message in enumerate(graph.messages()) if message["role"] == "assistant"
    ]
    for place, message in enumerate(graph.messages()):
        if message["role"] == "tool":
            (child,) = graph.nested(place)
            assert (len(child), len(child.calls())) == (2, 1)
