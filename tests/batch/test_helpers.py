"""`stemma batch` with helpers, the real command at a real endpoint: they do their part, and it does not show."""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from batches import bytes_of, lines_of, records_of
from helped import (
    assert_all_done_once,
    children,
    end,
    endpoint,
    group,
    helpers,
    rebuilt,
    start_batch,
    until,
    write_prompts,
)
from stemma.cli.chat_stopping import ONE_PRESS

PROMPTS = 120
COMMAND = ("-m", "stemma")
BUSY_AT_A_THIRD = ("-c", "from stemma.batch import busy; busy.BUSY = 0.3; from stemma.cli.main import run; run()")
"""The command on a machine that has others to serve as well."""


def run(home: Path, url: str, *more: str) -> tuple[int, list[dict], str, int]:
    """The command to its end, and how many helpers were seen."""
    process = start_batch(home, url, *more)
    seen: set[int] = set()
    while not seen and process.poll() is None:
        seen |= set(helpers(process.pid))
    return *end(process), len(seen)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with a run that had helpers."""
    home = tmp_path_factory.mktemp("helped")
    write_prompts(home, PROMPTS)
    with endpoint() as model:
        code, said, err, seen = run(home, model.url, "-c", "8", "--processes", "3")
    assert (code, err) == (0, "")
    assert seen, "there was to be a helper"
    (home / "said.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said))
    return home


def test_with_helpers_nothing_is_lost_and_nothing_is_repeated(home):
    assert_all_done_once(home, PROMPTS)
    assert {record.attempts for record in records_of(home / "runs", "r").values()} == {1}


def test_every_task_is_shown_once_whoever_did_it(home):
    said = lines_of(home / "said.jsonl")
    results = [line for line in said if line["event"] == "result"]
    assert set(Counter(line["name"] for line in results).values()) == {1}
    assert {line["answer"][:14] for line in results} == {"It says: 1\tnot"}
    assert len(results) == said[-1]["statistics"]["tasks"]["completed"] == PROMPTS
    assert (said[0]["event"], said[-1]["event"], said[-1]["stopped"]) == ("plan", "end", None)


def test_rebuilding_gives_the_same_bytes_as_a_run_with_helpers_wrote(home):
    before = bytes_of(home / "runs" / "r")
    assert len(before) > PROMPTS / 20
    assert rebuilt(home) == before


def test_the_files_say_what_they_say_without_helpers(home, tmp_path):
    write_prompts(tmp_path, PROMPTS)
    with endpoint() as model:
        code, _, _, seen = run(tmp_path, model.url, "-c", "8", "--processes", "1")
    assert (code, seen) == (0, 0)
    alone, helped = (bytes_of(place / "runs" / "r") for place in (tmp_path, home))
    timed = {"statistics.json"}
    assert {name: data for name, data in alone.items() if name not in timed} == {
        name: data for name, data in helped.items() if name not in timed
    }
    assert "processes" in (home / "runs" / "r" / "config.yaml").read_text()


def test_all_processes_together_ask_no_more_at_once_than_was_said(tmp_path):
    write_prompts(tmp_path, 40)
    with endpoint(latency=0.15) as model:  # all of the chief's are asking still when a helper begins
        code, _, err, seen = run(tmp_path, model.url, "-c", "8", "--processes", "3")
        assert (code, err) == (0, "")
        assert seen
        assert model.most == 8
    assert_all_done_once(tmp_path, 40)


def test_a_run_within_a_budget_stays_in_one_process_and_uses_no_more_than_one_call_beyond_it(tmp_path):
    write_prompts(tmp_path, PROMPTS)
    with endpoint(latency=0.01) as model:
        code, said, _, seen = run(tmp_path, model.url, "-c", "6", "--processes", "3", "--budget", "100k tokens")
    assert (code, seen) == (3, 0)
    assert "budget" in said[-1]["stopped"]
    used = said[-1]["statistics"]["tokens"]["total_tokens"]
    assert 100_000 <= used <= 100_000 + 1_000, "a call uses about 930"
    assert used == sum(record.usage["total_tokens"] for record in records_of(tmp_path / "runs", "r").values())


def test_what_a_helper_fails_at_is_a_failure_and_is_tried_once_in_a_run(tmp_path):
    prompts = write_prompts(tmp_path, 80)
    rows = lines_of(prompts)
    bad = [row | {"cwd": "/nowhere"} if i % 2 else row for i, row in enumerate(rows)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in bad))
    with endpoint() as model:
        code, said, _, seen = run(tmp_path, model.url, "-c", "4", "--processes", "2")
    assert (code, seen) == (3, 1)
    assert said[-1]["statistics"]["errors"] == {"BadPrompt": 40}
    assert {record.attempts for record in records_of(tmp_path / "runs", "r").values()} == {1}


def test_a_helper_is_called_when_replies_come_faster_than_one_process_can_take_them(tmp_path):
    write_prompts(tmp_path, 400)
    with endpoint() as model:
        process = start_batch(tmp_path, model.url, "-c", "16", "--processes", "2", program=BUSY_AT_A_THIRD)
        until(lambda: helpers(process.pid))
        process.kill()
        process.communicate()


def test_while_the_endpoint_is_slow_nobody_is_called(tmp_path):
    write_prompts(tmp_path, 300)
    with endpoint(latency=0.5) as model:
        process = start_batch(tmp_path, model.url, "-c", "100", "--processes", "2", program=COMMAND)
        until(lambda: model.asked > 250)  # two and a half rounds of questions
        reserve, called = children(process.pid), helpers(process.pid)
        process.kill()
        process.communicate()
    assert (len(reserve), called) == (1, [])


@pytest.mark.parametrize("which", ["helper", "reserve"])
def test_a_process_that_is_stopped_does_not_keep_the_command_from_being_interrupted(tmp_path, which):
    write_prompts(tmp_path, PROMPTS)
    with endpoint(latency=0.05) as model:
        process = start_batch(tmp_path, model.url, "-c", "8", "--processes", "3")
        (helper, *_) = until(lambda: helpers(process.pid))
        stopped = helper if which == "helper" else children(process.pid)[0]
        os.kill(stopped, signal.SIGSTOP)
        until(lambda: model.asked > 30)
        for _ in range(2):
            os.kill(process.pid, signal.SIGINT)
            time.sleep(1.5 * ONE_PRESS)
        code, said, _ = end(process)
        assert code == 130
        assert said[-1]["event"] == "end"
        assert group(process.pid) == []
        assert end(start_batch(tmp_path, model.url, "-c", "8", "--processes", "1"))[0] == 0
    assert_all_done_once(tmp_path, PROMPTS)


def test_the_first_interruption_waits_for_no_helper_that_is_stopped(tmp_path):
    write_prompts(tmp_path, PROMPTS)
    with endpoint(latency=0.05) as model:
        process = start_batch(tmp_path, model.url, "-c", "8", "--processes", "3")
        (helper, *_) = until(lambda: helpers(process.pid))
        os.kill(helper, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGINT)
        assert end(process)[0] == 130
    assert group(process.pid) == []


def test_a_second_process_on_a_run_ends_with_0_although_the_first_is_still_at_it(tmp_path):
    write_prompts(tmp_path, 3)
    with endpoint(latency=2.0) as model:
        first = start_batch(tmp_path, model.url, "-c", "3", "--processes", "1")
        until(lambda: model.asked == 3)
        code, said, _ = end(start_batch(tmp_path, model.url, "-c", "3", "--processes", "1"))
        assert first.poll() is None, "the first was to be at it still"
        assert (code, [line["event"] for line in said]) == (0, ["plan", "end"])
        assert end(first)[0] == 0
    assert_all_done_once(tmp_path, 3)
