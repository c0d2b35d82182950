"""`stemma batch` whose processes are killed or interrupted: none is left behind, nothing is lost, nothing is repeated.

The real command at a real endpoint, with helpers that are called at once. `kill -9` takes the chief, a helper or the
process in reserve; Ctrl-C reaches the whole process group, as from a terminal.
"""

import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import needs
from batches import calls, records_of
from crash.audit import needs_strace
from crash.test_batch_interrupts import processes_called
from helped import assert_all_done_once, children, end, endpoint, group, helpers, start_batch, until, write_prompts
from stemma.cli.batch_running import ONE_PRESS

PROMPTS = 60
OPTIONS = ("-c", "6", "--processes", "3")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_prompts(tmp_path, PROMPTS)
    return tmp_path


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder for temporary files that those who stand behind a fence can reach, too."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def start_with_helpers(home: Path, url: str, number: int = 2) -> "subprocess.Popen[str]":
    """A run that has so many helpers now."""
    process = start_batch(home, url, *OPTIONS)
    until(lambda: len(helpers(process.pid)) >= number)
    time.sleep(0.2)  # they have begun something now
    return process


def finish(home: Path, url: str) -> None:
    """Take the run up again; it ends as if nothing had been."""
    code, _, err = end(start_batch(home, url, *OPTIONS))
    assert (code, err) == (0, "")
    assert_all_done_once(home, PROMPTS)


def test_a_killed_helper_leaves_its_tasks_to_the_others(home):
    with endpoint(latency=0.02) as model:
        process = start_with_helpers(home, model.url)
        os.kill(helpers(process.pid)[0], signal.SIGKILL)
        code, said, err = end(process)
    assert (code, err) == (0, "")
    assert len({line["name"] for line in said if line["event"] == "result"}) >= PROMPTS - 2
    assert_all_done_once(home, PROMPTS)


@pytest.mark.slow
def test_all_helpers_killed_the_chief_does_it_alone(home):
    with endpoint(latency=0.02) as model:
        process = start_with_helpers(home, model.url)
        for helper in helpers(process.pid):
            os.kill(helper, signal.SIGKILL)
        code, _, err = end(process)
        assert (code, err) == (0, "")
        assert model.most <= 6 + 4, "what a killed helper had asked may be under way still"
    assert_all_done_once(home, PROMPTS)


@pytest.mark.slow
def test_a_killed_reserve_costs_nothing_but_further_helpers(home):
    with endpoint(latency=0.02) as model:
        process = start_with_helpers(home, model.url, 1)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        code, _, err = end(process)
    assert (code, err) == (0, "")
    assert_all_done_once(home, PROMPTS)
    until(lambda: not group(process.pid), 5)


def test_a_killed_chief_leaves_no_process_and_the_run_goes_on_later(home):
    with endpoint(latency=0.05) as model:
        process = start_with_helpers(home, model.url)
        process.kill()
        process.wait()
        until(lambda: not group(process.pid), 10)
        process.communicate()
        left = records_of(home / "runs", "r")
        assert any(record.status == "running" for record in left.values())
        finish(home, model.url)


def live_a_while(home: Path, url: str, chance: random.Random) -> None:
    """One life of a run: at a random moment one of its processes is killed, then the chief."""
    process = start_batch(home, url, *OPTIONS)
    until(lambda: helpers(process.pid) or process.poll() is not None)
    time.sleep(chance.uniform(0.0, 0.3))
    os.kill(chance.choice([process.pid, *helpers(process.pid)]), signal.SIGKILL)
    time.sleep(chance.uniform(0.0, 0.2))
    process.kill()
    process.wait()
    until(lambda: not group(process.pid), 10)
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_processes_killed_at_random_moments_lose_and_repeat_nothing(home, seed):
    chance = random.Random(seed)
    with endpoint(latency=0.03) as model:
        for _ in range(5):
            live_a_while(home, model.url, chance)
        finish(home, model.url)


def test_one_interrupt_lets_the_conversations_of_all_processes_end(home):
    with endpoint(latency=0.05) as model:
        process = start_with_helpers(home, model.url)
        os.killpg(process.pid, signal.SIGINT)
        code, said, err = end(process)
        assert (code, err) == (130, "")
        assert "interrupted" in said[-1]["stopped"]
        records = records_of(home / "runs", "r")
        assert 1 <= len(records) < PROMPTS
        assert {record.status for record in records.values()} == {"completed"}
        assert group(process.pid) == []
        finish(home, model.url)


def test_a_second_interrupt_leaves_the_conversations_of_all_processes_where_they_are(home):
    with endpoint(latency=0.05) as model:
        process = start_with_helpers(home, model.url)
        model.latency = 3.0
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(ONE_PRESS + 0.1)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        code, _, err = end(process)
        assert time.monotonic() - began < 2
        assert (code, "Traceback" in err) == (130, False)
        assert group(process.pid) == []
        model.latency = 0.0
        finish(home, model.url)


@needs.command("bwrap", "bubblewrap")
@pytest.mark.parametrize("who", ["a helper", "the chief"])
def test_what_the_tools_of_a_killed_process_have_started_ends_with_it(home, open_folder, who):
    write_prompts(home, 600)
    command, sleepy = f"sleep 62.{os.getpid()}", threading.Event()

    def answers_or_sleeps(request: dict) -> dict:
        if sleepy.is_set():
            return {"role": "assistant", **calls("terminal", {"command": command})}
        return {"role": "assistant", "content": "I am awake.", "reasoning": "It is day."}

    with endpoint(latency=0.05, reply=answers_or_sleeps) as model:
        process = start_batch(home, model.url, *OPTIONS, "--toolsets", "terminal", temporary=open_folder)
        called = until(lambda: helpers(process.pid))
        time.sleep(0.2)
        sleepy.set()
        until(lambda: len(processes_called(command)) >= 6)
        os.kill(process.pid if who == "the chief" else called[0], signal.SIGKILL)
        if who == "a helper":
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            time.sleep(ONE_PRESS + 0.1)
            process.send_signal(signal.SIGINT)
        process.wait(20)
        until(lambda: not processes_called(command), 10)
        until(lambda: not group(process.pid), 10)
        process.communicate()


def test_a_reader_that_has_enough_ends_the_run_and_its_helpers(home):
    with endpoint(latency=0.02) as model:
        process = start_with_helpers(home, model.url, 1)
        process.stdout.close()
        assert process.wait(20) == 1
        process.stderr.close()
        assert group(process.pid) == []
        finish(home, model.url)


def test_a_helper_whose_disk_fails_ends_the_run_with_the_error_and_the_run_goes_on_later(home):
    needs_strace()
    with endpoint(latency=0.02) as model:
        process = start_with_helpers(home, model.url, 1)
        fault = ["strace", "-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC"]
        with subprocess.Popen([*fault, "-p", str(helpers(process.pid)[0])], stderr=subprocess.DEVNULL) as strace:
            code, _, err = end(process)
            strace.wait()
        assert code == 1
        assert "stemma.db" in err
        assert "Traceback" not in err
        assert group(process.pid) == []
        finish(home, model.url)
