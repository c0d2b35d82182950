"""Many tasks at once: how many, what one of them may do to the others, and what stopping leaves behind."""

import asyncio
import itertools
import os
import tempfile
import threading
import time

import pytest

from batches import adder, adding_agent, calls, lines_of
from stemma import open_store
from stemma.agent.agent import Agent
from stemma.batch.batch import run_batch
from stemma.batch.places import REMEMBERED, Places
from stemma.models.errors import RateLimited
from stemma.models.protocol import Request
from stemma.models.retry import watcher
from stemma.models.scripted import ScriptedModel
from stemma.tools.workspace import Workspace


class Busy:
    """A model that takes a moment, and knows how many ask at once."""

    def __init__(self, seconds=0.01, turns=1):
        self.seconds, self.turns, self.now, self.most = seconds, turns, 0, 0

    async def __call__(self, request: Request):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.seconds)
        self.now -= 1
        return adder(request)


def rows(number):
    return [f"prompt {i}" for i in range(number)]


def run(prompts, folder, script, **more):
    batch = run_batch(prompts, agent=adding_agent(ScriptedModel(script)), name="r", folder=folder, **more)
    return batch, list(batch)


def test_no_more_run_at_once_than_was_said(tmp_path):
    busy = Busy()
    run(rows(20), tmp_path, busy, concurrency=3)
    assert busy.most == 3


def test_without_a_number_as_many_run_as_the_endpoint_bears(tmp_path):
    busy = Busy(seconds=0.03)
    batch, _ = run(rows(150), tmp_path, busy)
    assert busy.most > 32
    assert batch.progress.limit_why in ("starting", "going well")


def test_a_rate_limit_makes_fewer_run_at_once(tmp_path):
    def answers_late(request):
        watcher.get()(RateLimited("429"), 0.5)  # as a client does that will ask again
        return adder(request)

    agent = adding_agent(ScriptedModel(answers_late))
    seconds = itertools.count(0.0, 2.0)
    batch = run_batch(rows(12), agent=agent, name="r", folder=tmp_path, concurrency=8, clock=lambda: next(seconds))
    assert max(batch.progress.limit for _ in batch) < 8


ODD = {"exit": SystemExit(3), "stop": StopIteration(1), "cancel": asyncio.CancelledError(), "key": KeyError("k")}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_raises_exits_cancels_or_moves_ends_no_other_conversation(tmp_path, monkeypatch, is_async):
    monkeypatch.chdir(tmp_path)

    def leaves(way: str) -> int:
        """Leave.

        way: how
        """
        if way == "move":
            os.chdir("/")
            return 1
        raise ODD[way]

    async def leaves_async(way: str) -> int:
        """Leave.

        way: how
        """
        await asyncio.sleep(0)
        return leaves(way)

    name = "leaves_async" if is_async else "leaves"

    def calls_it(request):
        last = request.messages[-1]
        if last["role"] == "tool":
            return {"content": f"It said {last['content']}", "reasoning": "r"}
        return calls(name, {"way": last["content"]})

    agent = Agent(model=ScriptedModel(calls_it), tools=[leaves, leaves_async])
    batch = run_batch([*ODD, "move"], agent=agent, name="r", folder="runs")
    results = list(batch)
    assert [result.record.status for result in results] == ["completed"] * 5
    assert all(result.record.tools[name].failure == 1 for result in results)
    assert os.getcwd() == str(tmp_path)
    assert batch.statistics["tool_statistics"][name]["count"] == 5
    assert batch.statistics["tool_statistics"]["unknown"]["count"] == 0


@pytest.mark.parametrize("problem", [StopIteration(1), asyncio.CancelledError(), SystemExit(3)])
def test_a_reward_that_raises_what_it_likes_is_counted_and_ends_no_run(tmp_path, problem):
    def reward(scored):
        raise problem

    batch = run_batch(["one", "two"], agent=adding_agent(), name="r", folder=tmp_path, reward=reward)
    assert [result.record.status for result in batch] == ["completed"] * 2
    assert batch.statistics["rewards"]["failed"] == 2
    assert batch.statistics["exported"] == 0


def test_stopping_is_told_with_its_reason_and_leaves_whole_files(tmp_path):
    batch = run_batch(rows(30), agent=adding_agent(ScriptedModel(Busy())), name="r", folder=tmp_path, concurrency=2)
    for _ in batch:
        batch.stop("enough")
    assert batch.progress.stopping == "enough"
    done = batch.statistics["tasks"]["completed"]
    assert 1 <= done < 30
    assert len(lines_of(tmp_path / "r" / "trajectories.jsonl")) == done


def test_cancelling_does_not_wait_for_replies(tmp_path):
    async def never(request):
        await asyncio.sleep(600)

    batch = run_batch(rows(4), agent=adding_agent(ScriptedModel(never)), name="r", folder=tmp_path)
    threading.Timer(0.3, batch.cancel).start()
    began = time.monotonic()
    assert list(batch) == []
    assert time.monotonic() - began < 5
    with open_store(tmp_path / "r" / "stemma.db", create=False) as store:
        assert store.verify() == []


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The system's temporary folder, of this test alone."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_working_folders_are_gone_when_a_run_is_done_also_those_that_a_crash_left(tmp_path, temporary):
    prompts = [{"prompt": f"p{i}", "files": {"a.txt": "x"}} for i in range(5)]
    _, results = run(prompts, tmp_path, Busy())
    assert not list(temporary.iterdir())
    places = Places(tmp_path / "r")  # and never closed, as a crash leaves it
    places.path(results[0].record.name).mkdir()
    os.close(places._folder)
    run(prompts, tmp_path, Busy())
    assert not list(temporary.iterdir())
    assert not (tmp_path / "r" / REMEMBERED).exists()


def test_a_task_that_failed_before_its_tools_ran_leaves_no_folder(tmp_path, temporary):
    prompts = [{"prompt": f"p{i}", "files": {"a.txt": "x"}} for i in range(15)]
    run(prompts, tmp_path, lambda request: ValueError("odd"))
    assert not list(temporary.iterdir())
    assert not (tmp_path / "r" / "unfinished").exists()


def note(text: str, workspace: Workspace) -> str:
    """Write it down."""
    with (workspace.root / "notes.txt").open("a") as file:
        file.write(text)
    return (workspace.root / "notes.txt").read_text()


def test_what_the_tools_of_a_failed_task_have_written_is_there_when_it_is_tried_again(tmp_path, temporary):
    prompts = [{"prompt": "p", "files": {"notes.txt": "first "}}]
    script = iter([calls("note", {"text": "second "}), ValueError("odd"), calls("note", {"text": "third"}), "Done."])

    def again(**more):
        agent = Agent(model=ScriptedModel(script), tools=[note])
        return list(run_batch(prompts, agent=agent, name="r", folder=tmp_path, **more))

    (failed,) = again()
    assert failed.record.status == "failed"
    assert not list(temporary.iterdir())
    kept = tmp_path / "r" / "unfinished"
    assert (kept.stat().st_mode & 0o777, (kept / failed.record.name).stat().st_mode & 0o777) == (0o700, 0o700)
    assert again(retry_failed=False) == []
    assert (kept / failed.record.name / "notes.txt").read_text() == "first second "
    (done,) = again()
    assert [m["content"] for m in done.graph if m["role"] == "tool"] == ["first second ", "first second third"]
    assert not list(temporary.iterdir())
    assert not kept.exists()


def test_a_task_that_is_interrupted_while_its_folder_is_copied_leaves_none(tmp_path, temporary):
    source = tmp_path / "source"
    for i in range(3000):
        (source / str(i // 100)).mkdir(parents=True, exist_ok=True)
        (source / str(i // 100) / str(i)).write_text("x")
    prompts = [{"prompt": f"p{i}", "cwd": str(source)} for i in range(4)]
    batch = run_batch(prompts, agent=adding_agent(ScriptedModel(adder)), name="r", folder=tmp_path)

    def cancel_while_copying():
        while not list(temporary.glob("*/*.new")):
            time.sleep(0.001)
        batch.cancel()

    canceller = threading.Thread(target=cancel_while_copying)
    canceller.start()
    assert list(batch) == []
    canceller.join()
    assert not list(temporary.iterdir())


def test_interrupted_tasks_leave_no_folder_among_temporary_files(tmp_path, temporary):
    async def hangs_after_a_tool(request):
        if request.messages[-1]["role"] == "tool" or request.messages[-1]["content"] == "p1":
            await asyncio.sleep(600)
        return calls("note", {"text": "written"})

    agent = Agent(model=ScriptedModel(hangs_after_a_tool), tools=[note])
    batch = run_batch([f"p{i}" for i in range(3)], agent=agent, name="r", folder=tmp_path)
    threading.Timer(0.5, batch.cancel).start()
    assert list(batch) == []
    assert not list(temporary.iterdir())
    kept = tmp_path / "r" / "unfinished"
    assert [(place / "notes.txt").read_text() for place in kept.iterdir()] == ["written"] * 2
