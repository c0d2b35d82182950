"""Twelve ways in which a batch runner in wide use loses data, each as a promise that ours does not."""

import asyncio
import gc
import json
import signal
import subprocess
from pathlib import Path

import pytest

from batches import adder, adding_agent, bytes_of, lines_of, records_of
from stemma import MessageGraph
from stemma.batch.batch import run_batch
from stemma.models.errors import RateLimited, Refused
from stemma.models.scripted import ScriptedModel
from store.child import finish, python, start

SHARER = Path(__file__).with_name("sharer.py")


def run(prompts, folder, **more):
    """A run of the adding agent to its end; the batch and its results."""
    batch = run_batch(prompts, folder=folder, **{"agent": adding_agent(), "name": "r", **more})
    return batch, list(batch)


def answering(function):
    return adding_agent(ScriptedModel(function))


def entries(folder):
    return lines_of(folder / "r" / "trajectories.jsonl")


@pytest.mark.parametrize("problem", [Refused("bad key", status=401), RateLimited("slow down", status=429)])
def test_provider_failures_are_not_lost(tmp_path, problem):
    batch, _ = run(["a", "bb", "ccc"], tmp_path, agent=answering(lambda request: problem))
    assert batch.statistics["left_out"] == {}
    assert [line["text"] for line in lines_of(tmp_path / "r" / "failures.jsonl")] == [str(problem)] * 3
    _, results = run(["a", "bb", "ccc"], tmp_path)
    assert [result.record.status for result in results] == ["completed"] * 3
    assert len(entries(tmp_path)) == 3


def test_a_provider_failure_after_a_good_turn_is_not_called_completed(tmp_path):
    def breaks(request):
        return Refused("no", status=400) if request.messages[-1]["role"] == "tool" else adder(request)

    batch, _ = run(["one"], tmp_path, agent=answering(breaks))
    assert batch.statistics["tasks"]["completed"] == 0
    assert entries(tmp_path) == []
    _, results = run(["one"], tmp_path)
    assert results[0].answer == "It is 4."


def test_identical_prompts_do_not_collapse_when_a_run_is_taken_up(tmp_path):
    run(["same"], tmp_path)
    batch, results = run(["same"] * 7, tmp_path)
    assert (batch.progress.kept, len(results)) == (1, 6)
    assert len(entries(tmp_path)) == 7


def test_another_dataset_under_the_same_name_skips_no_row_of_it(tmp_path):
    run(["one", "three"], tmp_path)
    batch, results = run(["seven", "eleven"], tmp_path)
    assert (batch.progress.kept, len(results)) == (0, 2)
    assert {entry["conversations"][1]["value"] for entry in entries(tmp_path)} >= {"seven", "eleven"}


def test_merged_files_that_a_crash_kept_from_being_written_are_written_by_the_next_run(tmp_path):
    run(["one", "three"], tmp_path)
    whole = bytes_of(tmp_path / "r")
    for name in whole:
        (tmp_path / "r" / name).unlink()
    assert run(["one", "three"], tmp_path)[1] == []
    assert bytes_of(tmp_path / "r") == whole


def test_a_torn_last_line_costs_no_record(tmp_path):
    run(["one", "three"], tmp_path)
    whole = bytes_of(tmp_path / "r")
    for name, content in whole.items():
        (tmp_path / "r" / name).write_bytes(content[: len(content) // 2])
    run(["one", "three", "eleven"], tmp_path)
    assert [entry["prompt_index"] for entry in entries(tmp_path)] == [0, 1, 2]
    assert entries(tmp_path)[0] == json.loads(whole["trajectories.jsonl"].splitlines()[0])


def test_conversations_left_out_of_the_files_are_not_run_again(tmp_path):
    model = ScriptedModel(lambda request: "No thought.")
    run(["one", "three"], tmp_path, agent=adding_agent(model))
    again = ScriptedModel(lambda request: "No thought.")
    batch, results = run(["one", "three", "eleven"], tmp_path, agent=adding_agent(again))
    assert len(results) == len(again.requests) == 1
    assert batch.statistics["left_out"] == {"no reasoning": 3}


def test_a_run_taken_up_again_overwrites_no_part_and_counts_the_whole_run(tmp_path):
    rows = [f"prompt {i}" for i in range(25)]
    run(rows[:12], tmp_path, batch_size=10)
    first = lines_of(tmp_path / "r" / "batch_001_output.jsonl")
    batch, _ = run(rows, tmp_path, batch_size=10)
    sizes = [len(lines_of(tmp_path / "r" / f"batch_{n:03d}_output.jsonl")) for n in (1, 2, 3)]
    assert sizes == [10, 10, 5]
    assert lines_of(tmp_path / "r" / "batch_001_output.jsonl") == first
    assert batch.statistics["tasks"]["completed"] == 25
    assert [entry["prompt_index"] for entry in entries(tmp_path)] == [*range(25)], "part 10 does not come before part 2"


def test_a_killed_worker_does_not_hang_the_run_nor_lose_its_tasks(tmp_path):
    workers = [start(python(SHARER, tmp_path, "r", 60), stdin=subprocess.PIPE) for _ in range(2)]
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    assert workers[0].stdout.readline()
    workers[0].send_signal(signal.SIGKILL)
    workers[0].communicate()
    finish(workers[1], within=30)
    finish(start(python(SHARER, tmp_path, "r", 60), stdin=subprocess.DEVNULL))
    found = records_of(tmp_path, "r")
    assert [record.status for record in found.values()] == ["completed"] * 60
    assert all(record.api_calls == 2 for record in found.values())


def test_trouble_around_one_conversation_does_not_end_the_others(tmp_path):
    rows = ["one", {"prompt": "three", "cwd": str(tmp_path / "not there")}, "eleven"]
    batch, results = run(rows, tmp_path)
    assert batch.statistics["tasks"] == {"begun": 3, "completed": 2, "stopped": 0, "failed": 1, "running": 0}
    (tmp_path / "not there").mkdir()
    _, results = run(rows, tmp_path)
    assert [result.record.prompt_index for result in results] == [1]


def test_an_interrupt_keeps_what_conversations_in_flight_have_said(tmp_path):
    async def stuck(request):
        if request.messages[-1]["role"] == "tool" and len(request.messages[0]["content"]) > 3:
            await asyncio.sleep(60)
        return adder(request)

    batch = run_batch(["one", "three"], agent=answering(stuck), name="r", folder=tmp_path, concurrency=2)
    for _ in batch:
        batch.cancel()
    assert len(entries(tmp_path)) == 1
    assert batch.statistics["tasks"]["running"] == 1
    model = ScriptedModel(adder)
    run(["one", "three"], tmp_path, agent=adding_agent(model))
    assert len(model.requests) == 1, "its first turn was kept"
    assert len(entries(tmp_path)) == 2


def test_results_that_were_handed_over_do_not_stay_in_memory(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(f'{{"prompt": "prompt {i}"}}\n' for i in range(200)))
    seen = 0
    for _ in run_batch(file, agent=adding_agent(), name="r", folder=tmp_path, concurrency=4):
        seen += 1
        if seen == 150:
            gc.collect()
            alive = sum(isinstance(one, MessageGraph) for one in gc.get_objects())
    assert seen == 200
    assert alive < 60, f"{alive} conversations are in memory"
