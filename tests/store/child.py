"""Other processes, for promises that one process cannot break or keep alone."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import stemma

ENV = {**os.environ, "PYTHONPATH": str(Path(stemma.__file__).parents[1])}


def python(script: str | Path, *args: Any) -> list[str]:
    """The command that runs a script, given as text or as a file, with the stemma under test."""
    head = [str(script)] if isinstance(script, Path) else ["-c", textwrap.dedent(script)]
    return [sys.executable, *head, *map(str, args)]


def start(command: list[str], **rest: Any) -> "subprocess.Popen[str]":
    """A running process whose output can be read."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **rest}
    return subprocess.Popen(command, env=ENV, text=True, **pipes)


def finish(process: "subprocess.Popen[str]", within: float = 60) -> str:
    """What the process printed; it must end well and complain of nothing."""
    try:
        out, err = process.communicate(timeout=within)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, ""), err or f"it ended with {process.returncode}"
    return out


def run(script: str | Path, *args: Any, within: float = 60) -> str:
    """Run a script to its end; what it printed."""
    return finish(start(python(script, *args)), within)
