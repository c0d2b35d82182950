"""A run that is killed goes on where it was: the same output, and no summary paid for twice."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compress.endpoint import endpoint
from compress.rows import Words, model_summarizer, settings, turn, words
from stemma.compress.errors import OutputThere
from stemma.compress.files import Source, compress_files
from stemma.compress.journal import Journal
from stemma.compress.run import Run
from stemma.compress.sampling import Sample

ROWS = 40
SOURCE = Path(__file__).parents[2] / "src"


def row(number):
    """No two alike, so that no two summaries are asked for with the same question."""
    steps = [turn(role, 40, number * 100 + step) for step in range(12) for role in ("gpt", "tool")]
    return {"n": number, "conversations": [turn("system", 5), turn("human", 5), *steps]}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(ROWS)))
    return path


def start(path, served):
    command = ["compress", str(path), "--tokenizer", "estimate", "--budget", "900", "-m", "m", "-c", "3"]
    return subprocess.Popen(
        [sys.executable, "-c", "from stemma.cli.main import run; run()", *command, "--base-url", f"{served.url}/v1"],
        cwd=path.parent,
        env={"PATH": os.environ["PATH"], "HOME": str(path.parent), "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def kill_after(process, served, answers):
    while len(served.prompts) < answers and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(0.1)  # what was sent before is received


def paid(path):
    journal = path.with_name("a_compressed.jsonl.journal")
    return journal.read_bytes().count(b'{"paid"') if journal.exists() else 0


@pytest.mark.parametrize("answers", [1, 12, ROWS - 1])
def test_a_killed_run_goes_on_without_paying_twice(data, answers):
    with endpoint() as served:
        served.delay = 0.005
        kill_after(start(data, served), served, answers)
        assert not (data.parent / "a_compressed.jsonl").exists()
        already, asked = paid(data), len(served.prompts)
        assert already >= answers - 3, "what was answered is kept at once"
        process = start(data, served)
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert len(served.prompts) - asked == ROWS - already
    rows = [json.loads(line) for line in (data.parent / "a_compressed.jsonl").read_bytes().splitlines()]
    assert [r["n"] for r in rows] == list(range(ROWS))
    assert all(r["compression_metrics"]["compressed_tokens"] <= 900 for r in rows)
    told = json.loads((data.parent / "a_compressed_metrics.json").read_text())
    assert told["summary"]["trajectories_compressed"] == ROWS, "the report has the rows of both runs"
    assert told["summarization"]["total_api_calls"] == ROWS
    assert sorted(p.name for p in data.parent.glob("a_comp*")) == ["a_compressed.jsonl", "a_compressed_metrics.json"]


class Killed(BaseException):
    """Ends a run at a point that a signal would be lucky to hit."""


def run(path, identity="one", kill_at=None):
    summarizer, model = model_summarizer(lambda request: words(10))
    rows = 0

    def on_row():
        nonlocal rows
        rows += 1
        if rows == kill_at:
            raise Killed

    async def go():
        how = settings(target=300)
        await compress_files(Source(path, Sample()), None, Run(how, Words(), summarizer, on_row), {"run": identity})

    with contextlib.suppress(Killed):
        asyncio.run(go())
    return len(model.requests)


def output(path):
    return path.with_name("a_compressed.jsonl").read_bytes()


def test_a_run_killed_again_and_again_ends_with_the_same_bytes(data, tmp_path):
    whole = tmp_path / "whole" / "a.jsonl"
    whole.parent.mkdir()
    whole.write_bytes(data.read_bytes())
    asked = run(whole)
    again = sum(run(data, kill_at=at) for at in (1, 3, 20, 39))
    again += run(data)
    assert output(data) == output(whole)
    assert again == asked


@pytest.mark.parametrize("lost", [1, 700, 10**9])
def test_an_output_that_lost_its_end_is_written_again_from_there(data, tmp_path, lost):
    run(data, kill_at=30)
    partial = data.with_name("a_compressed.jsonl.partial")
    os.truncate(partial, max(0, partial.stat().st_size - lost))
    run(data)
    assert [json.loads(line)["n"] for line in output(data).splitlines()] == list(range(ROWS))


def test_a_journal_torn_in_its_last_line_is_read_up_to_there(data):
    run(data, kill_at=30)
    journal = data.with_name("a_compressed.jsonl.journal")
    with journal.open("ab") as file:
        file.write(b'{"paid": [0, 39, "ke')
    run(data)
    assert len(output(data).splitlines()) == ROWS


def test_a_run_with_other_settings_does_not_go_on_from_it(data):
    run(data, kill_at=10)
    with pytest.raises(OutputThere, match="other settings"):
        run(data, identity="two")


def test_a_run_killed_while_its_files_got_their_names_is_finished(data):
    run(data, kill_at=ROWS)
    journal = data.with_name("a_compressed.jsonl.journal")
    kept = journal.read_bytes()
    run(data)
    done = output(data)
    journal.write_bytes(kept)
    assert run(data) == 0
    assert output(data) == done
    assert not journal.exists()


def test_two_processes_do_not_write_one_output(tmp_path):
    async def go():
        first = Journal(tmp_path / "j", {})
        with pytest.raises(OutputThere, match="another process"):
            Journal(tmp_path / "j", {})
        first.close()

    asyncio.run(go())
