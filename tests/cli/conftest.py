"""What the tests of the command line share: stores to look at, and two ways to run a command."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.conversations import demo, say
from stemma import MessageGraph, open_store
from stemma.cli.main import main
from stemma.cli.trust import read_project, trust

SOURCE = Path(__file__).parents[2] / "src"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _state_of_the_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trusted in a test is trusted in it alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def trust_project(folder: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Trust the config file of a project, as its user does by `stemma config trust`."""
    file = folder / ".stemma/config.yaml"
    trust(read_project(file, file.read_bytes(), folder), environ)


@pytest.fixture
def demo_store(tmp_path: Path) -> Path:
    """A store that has the demo, and a second, plain graph."""
    path = tmp_path / "stemma.db"
    with open_store(path) as store:
        store.save(demo(), "demo", run="first")
        store.save(MessageGraph([say("user", "Hello")]), "hello")
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, in the folder of the test, where `stemma.db` is the store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEMMA_STORE", raising=False)

    def in_process(*arguments: str) -> Outcome:
        code = main(list(arguments))
        return Outcome(code, *capsys.readouterr())

    return in_process


@pytest.fixture
def command(tmp_path: Path) -> Run:
    """Runs the real command in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if name not in ("STEMMA_STORE", "NO_COLOR")}

    def in_subprocess(*arguments: str, **environment: str) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-c", "from stemma.cli.main import run; run()", *arguments],
            cwd=tmp_path,
            env=clean | {"PYTHONPATH": str(SOURCE)} | environment,
            capture_output=True,
            timeout=120,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return in_subprocess
