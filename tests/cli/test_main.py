"""Exit codes, help, one-line errors, colours on terminals only, and readers that go away early."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import SOURCE, Run

COMMANDS = ["log", "show", "diff", "verify", "merge"]


def test_help_lists_every_command_and_each_has_help(run: Run):
    code, out, _ = run("--help")
    assert code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\w", out, re.MULTILINE)
        code, text, _ = run(name, "--help")
        assert code == 0
        assert f"Usage: stemma {name}" in text
        assert "--json" in text


def test_help_loads_nothing_heavy():
    """`stemma --help` must answer within 0.3 s, on a busy machine too."""
    script = "import sys; from stemma.cli.main import main; main(['--help']); print('loaded', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, check=True
    )
    loaded = set(done.stdout.decode().rpartition("loaded ")[2].split())
    assert not {"rich", "sqlite3", "asyncio", "stemma.store", "stemma.cli.lanes"} & loaded


def test_a_command_does_not_wait_for_the_modules_of_the_others():
    script = "import sys; from stemma.cli.main import main; main(['diff', '--help']); print('loaded', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, check=True
    )
    loaded = set(done.stdout.decode().rpartition("loaded ")[2].split())
    assert "stemma.cli.diff" in loaded
    assert not {"stemma.cli.batch", "stemma.cli.export", "stemma.cli.models"} & loaded


def test_the_version_is_printed(run: Run):
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("stemma")


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["--frobnicate"],
        ["show"],
        ["diff", "demo"],
        ["merge", "only.db"],
        ["log", "demo", "--graph", "--mermaid"],
        ["log", "a", "b"],
        ["show", "nothing-of-the-kind"],
        ["show", "demo@7"],
        ["log", "--store", "missing.db"],
        ["verify", "missing.db"],
        ["verify", "."],
        ["log", "--graph"],
    ],
)
def test_wrong_usage_and_nothing_found_are_one_line_and_exit_1(run: Run, demo_store: Path, arguments: list[str]):
    code, out, err = run(*arguments)
    assert code == 1
    assert out == ""
    assert err.startswith("stemma: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_no_arguments_show_the_help(run: Run):
    assert run() == run("--help")


def test_the_store_is_taken_from_the_environment_and_the_option_comes_before_it(
    run: Run, demo_store: Path, monkeypatch: pytest.MonkeyPatch
):
    moved = demo_store.rename(demo_store.with_name("moved.db"))
    assert run("log").code == 1
    monkeypatch.setenv("STEMMA_STORE", str(moved))
    assert "demo" in run("log").out
    assert run("verify").code == 0
    assert run("log", "-s", "missing.db").code == 1


def test_the_real_command_works_in_any_encoding(command: Run, demo_store: Path):
    assert command("log", "demo", "--graph").code == 0
    code, out, err = command("log", "demo", "--graph", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (code, err) == (0, "")
    assert "\\u25cf" in out
    code, _, err = command("show", "\udcff\x1b[31m")
    assert code == 1
    assert err.startswith("stemma: nothing here is called")
    assert "\x1b" not in err


def test_a_reader_that_goes_away_is_no_error(demo_store: Path):
    script = f"{sys.executable} -c 'from stemma.cli.main import run; run()' log demo --graph --json | head -c 1; "
    done = subprocess.run(
        ["bash", "-c", script + "echo ${PIPESTATUS[0]}"],
        env={"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"], "STEMMA_STORE": str(demo_store)},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"{0\n"
    assert done.stderr == b""


def on_a_terminal(store: Path, *arguments: str, **environment: str) -> str:
    """What a command writes when standard output is a terminal."""
    outer, inner = pty.openpty()
    clean = {"PYTHONPATH": str(SOURCE), "STEMMA_STORE": str(store), "TERM": "xterm"}
    script = [sys.executable, "-c", "from stemma.cli.main import run; run()", *arguments]
    done = subprocess.Popen(script, stdout=inner, env=clean | environment)
    os.close(inner)
    found = b""
    try:
        while chunk := os.read(outer, 4096):
            found += chunk
    except OSError:  # how Linux says that the other side has closed a terminal
        pass
    os.close(outer)
    assert done.wait() == 0
    return found.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "arguments", [["log"], ["log", "demo", "--graph"], ["show", "demo"], ["diff", "demo@0", "demo"]]
)
def test_a_terminal_gets_colours_and_lines_that_fit_unless_told_otherwise(demo_store: Path, arguments: list[str]):
    painted = on_a_terminal(demo_store, *arguments)
    plain = on_a_terminal(demo_store, *arguments, NO_COLOR="1")
    assert "\x1b[" in painted
    assert "\x1b" not in plain
    assert "\x1b" not in on_a_terminal(demo_store, *arguments, TERM="dumb")
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain
