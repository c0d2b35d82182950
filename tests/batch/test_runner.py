"""Many tasks at once: how many, what one of them may do to the others, and what stopping leaves behind."""

import asyncio
import itertools
import os
import threading
import time

import pytest

from batches import adder, adding_agent, calls, lines_of
from stemma import open_store
from stemma.agent.agent import Agent
from stemma.batch.batch import run_batch
from stemma.batch.places import places_of
from stemma.models.errors import RateLimited
from stemma.models.protocol import Request
from stemma.models.retry import watcher
from stemma.models.scripted import ScriptedModel


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


def test_working_folders_are_gone_when_a_run_is_done_also_those_that_a_crash_left(tmp_path):
    prompts = [{"prompt": f"p{i}", "files": {"a.txt": "x"}} for i in range(5)]
    _, results = run(prompts, tmp_path, Busy())
    places = places_of(tmp_path / "r")
    assert not places.exists()
    (places / results[0].record.name).mkdir(parents=True)
    run(prompts, tmp_path, Busy())
    assert not places.exists()


def test_a_failed_task_keeps_its_folder_until_it_is_tried_again(tmp_path):
    prompts = [{"prompt": "p", "files": {"a.txt": "x"}}]
    _, results = run(prompts, tmp_path, lambda request: ValueError("odd"))
    place = places_of(tmp_path / "r") / results[0].record.name
    assert (place / "a.txt").exists()
    assert run(prompts, tmp_path, Busy(), retry_failed=False)[1] == []
    assert (place / "a.txt").exists()
    run(prompts, tmp_path, Busy())
    assert not place.exists()
