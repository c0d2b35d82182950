"""The real command `stemma batch`, interrupted: the first Ctrl-C drains, the second leaves, and both can be taken up.

Exit codes are 0 when all is done, 3 when something failed, 130 when it was interrupted. A tool's process that is killed
is a failure of that tool, which the model is told of; it is no failure of the run.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import needs
from batches import calls, lines_of, records_of
from helped import assert_all_done_once
from stemma.agent.agent import Agent
from stemma.batch.batch import run_batch
from stemma.cli.batch_running import ONE_PRESS
from stemma.errors import StoreError
from stemma.models.scripted import ScriptedModel
from stemma.tools.toolsets import choose_tools
from store.child import ENV

ENDPOINT = Path(__file__).parents[2] / "benchmarks" / "agent_endpoint.py"
PROMPTS = 12


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": f"Read it{'!' * i}", "files": {"notes.txt": f"note {i}"}} for i in range(PROMPTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@contextmanager
def endpoint(latency: float) -> Iterator[str]:
    """The base URL of a scripted agent's model."""
    command = [sys.executable, str(ENDPOINT), "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.communicate()


def stemma_batch(prompts: Path, url: str, *more: str) -> "subprocess.Popen[str]":
    """The command, running."""
    home = prompts.parent
    command = [sys.executable, "-c", "from stemma.cli.main import run; run()", "batch", str(prompts)]
    command += [
        "-m",
        "m",
        "--base-url",
        url,
        "--toolsets",
        "file",
        "--name",
        "r",
        "-c",
        "3",
        "--display",
        "json",
        *more,
    ]
    env = ENV | {"HOME": str(home), "TMPDIR": str(home), "OPENAI_API_KEY": "none"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=home, env=env, text=True, **pipes)


def hear(process: "subprocess.Popen[str]", event: str) -> dict:
    """Read what the command says until it says `event`."""
    for line in process.stdout:
        if (said := json.loads(line))["event"] == event:
            return said
    raise AssertionError(f"it ended before it said {event!r}: {process.stderr.read()}")


def end(process: "subprocess.Popen[str]") -> tuple[int, list[dict], str]:
    """The exit code, what else it said, and its complaints."""
    out, err = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


def wait_for_records(home: Path, number: int) -> None:
    """Until so many tasks have something in the store, which may not be there yet."""
    until, found = time.monotonic() + 30, 0
    while found < number and time.monotonic() < until:
        time.sleep(0.02)
        with suppress(StoreError):
            found = len(records_of(home / "runs", "r"))


def test_the_first_interrupt_lets_running_conversations_end_and_the_command_goes_on_later(prompts, tmp_path):
    with endpoint(latency=0.05) as url:
        process = stemma_batch(prompts, url)
        hear(process, "result")
        process.send_signal(signal.SIGINT)
        code, said, _ = end(process)
        assert code == 130
        assert said[-1]["event"] == "end"
        assert "interrupted" in said[-1]["stopped"]
        records = records_of(tmp_path / "runs", "r")
        assert 1 <= len(records) < PROMPTS
        assert {record.status for record in records.values()} == {"completed"}
        code, said, _ = end(stemma_batch(prompts, url))
        assert code == 0
        assert said[0]["kept"] == len(records)
        assert_all_done_once(tmp_path, PROMPTS)


def test_the_second_interrupt_leaves_conversations_where_they_are_and_they_go_on_from_there(prompts, tmp_path):
    with endpoint(latency=2.0) as url:
        process = stemma_batch(prompts, url)
        hear(process, "plan")
        wait_for_records(tmp_path, 3)  # first replies are kept now; second ones take two seconds
        process.send_signal(signal.SIGINT)
        time.sleep(ONE_PRESS + 0.1)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        code, _, err = end(process)
        assert time.monotonic() - began < 5
        assert code == 130
        assert "Traceback" not in err
        left = records_of(tmp_path / "runs", "r")
        assert {record.status for record in left.values()} == {"running"}
        assert all(record.api_calls for record in left.values())
    with endpoint(latency=0.0) as url:
        code, _, _ = end(stemma_batch(prompts, url))
        assert code == 0
        assert_all_done_once(tmp_path, PROMPTS)
        attempts = [record.attempts for record in records_of(tmp_path / "runs", "r").values()]
        assert sum(attempts) == PROMPTS + len(left)


@pytest.mark.slow
def test_an_endpoint_that_is_gone_ends_in_failures_and_code_3_and_all_of_it_is_tried_again(prompts, tmp_path):
    with endpoint(latency=0.0) as url:
        pass
    code, _, _ = end(stemma_batch(prompts, url, "-n", "2"))
    assert code == 3
    assert len(lines_of(tmp_path / "runs" / "r" / "failures.jsonl")) == 2
    with endpoint(latency=0.0) as url:
        code, _, _ = end(stemma_batch(prompts, url))
    assert code == 0
    assert_all_done_once(tmp_path, PROMPTS)


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────────


def processes_called(words: str) -> list[int]:
    """The processes whose command line holds `words`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if words in line:
                found.append(int(entry.name))
    return found


def kill_when_seen(words: str) -> threading.Thread:
    """A thread that kills the first process so called."""

    def watch() -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            for pid in processes_called(words):
                os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@needs.command("bwrap", "bubblewrap")
def test_a_tool_whose_process_is_killed_is_told_to_the_model_and_the_run_goes_on(tmp_path):
    words = f"sleep 61.{os.getpid()}"

    def sleeper(request):
        last = request.messages[-1]
        if last["role"] == "tool":
            return {"content": f"It said: {last['content']}", "reasoning": "so be it"}
        return calls("terminal", {"command": words if "long" in last["content"] else "echo fine"})

    agent = Agent(model=ScriptedModel(sleeper), tools=choose_tools(["terminal"]).tools)
    killer = kill_when_seen(words)
    results = list(run_batch(["long", "short"], agent=agent, name="r", folder=tmp_path))
    killer.join()
    used = {result.graph[0]["content"]: result.record.tools["terminal"] for result in results}
    assert (used["long"].failure, used["short"].success) == (1, 1)
    assert {result.record.status for result in results} == {"completed"}
    assert processes_called(words) == []
