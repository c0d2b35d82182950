"""One task: what is on disk before each step, what a crash leaves to do, and what becomes of a failure."""

import asyncio
from contextlib import suppress

import msgspec
import pytest

from batches import adder, adding_agent, calls
from faultserver import in_loop
from stemma.agent.agent import Agent
from stemma.agent.limits import Limits
from stemma.batch.plan import Task, fresh_record
from stemma.batch.prompts import as_row
from stemma.batch.work import Desk, work
from stemma.core.graph import MessageGraph
from stemma.errors import NotWritten
from stemma.models.errors import Refused
from stemma.models.retry import Retries
from stemma.models.scripted import ScriptedModel
from stemma.store.memory import MemoryStore


class Table:
    """A store for one task, and what was in it whenever something was about to happen."""

    def __init__(self, row, **agent):
        self.task = Task(as_row(row, 0), 0, 0)
        self.store, self.saves = MemoryStore(), 0
        self.agent = agent
        self.kept = None
        """The graph and the record as saved last."""

    async def save(self, graph, record):
        self.store.save(graph, "t")
        self.kept = (self.store.load("t"), record)
        self.saves += 1

    async def run(self, model=None, **desk):
        """From what was saved last, or from the beginning."""
        graph, record = self.kept or (MessageGraph(), fresh_record(self.task, "recipe", [], None))
        agent = adding_agent(model or ScriptedModel(adder), **self.agent)
        return await work(self.task, graph, record, Desk(agent=agent, **{"save": self.save, **desk}))


@in_loop
async def test_all_that_was_said_is_on_disk_before_the_next_question():
    table = Table({"prompt": ["one", "three"]})

    def asks(request):
        said = table.kept[0].messages() if table.kept else []
        new = request.messages[len(said) :]
        assert request.messages[: len(said)] == said
        assert all(message["role"] == "user" for message in new), "only a new prompt may be unsaved"
        return adder(request)

    record = await table.run(ScriptedModel(asks))
    assert (record.status, record.turns_answered, record.api_calls) == ("completed", 2, 4)
    assert table.kept[1] == record


@in_loop
async def test_a_reply_is_on_disk_before_its_tools_run_and_a_result_while_others_still_run():
    table, seen = Table("one"), []

    def look(n: int) -> int:
        """Look.

        n: which
        """
        seen.append([message["role"] for message in table.kept[0].messages()][:2])
        return n

    def two_calls(request):
        if request.messages[-1]["role"] == "tool":
            return "done"
        first, second = calls("look", {"n": 1}, "c1"), calls("look", {"n": 2}, "c2")
        return {**first, "tool_calls": [*first["tool_calls"], *second["tool_calls"]]}

    agent = Agent(model=ScriptedModel(two_calls), tools=[look])
    record = fresh_record(table.task, "r", [], None)
    await work(table.task, MessageGraph(), record, Desk(agent=agent, save=table.save))
    assert seen == [["user", "assistant"]] * 2
    assert table.saves == 4, "reply, first result, both results before the next question, end"


@in_loop
@pytest.mark.parametrize("step", range(1, 9))
async def test_a_task_cut_off_at_any_save_goes_on_to_the_same_end(step):
    whole = Table({"prompt": ["one", "three"]})
    expected = await whole.run()
    table, saves = Table({"prompt": ["one", "three"]}), 0

    class Crash(BaseException):
        """The process is gone."""

    async def crashing(graph, record):
        nonlocal saves
        saves += 1
        if saves == step:
            raise Crash
        await table.save(graph, record)

    with suppress(Crash):
        await table.run(save=crashing)
    record = await table.run()
    plain = {"seconds": 0.0, "finished": None}
    assert msgspec.structs.replace(record, **plain) == msgspec.structs.replace(expected, **plain)
    assert table.kept[0].messages() == whole.kept[0].messages()
    assert len(table.kept[0].calls()) == record.api_calls == 4


@in_loop
async def test_a_failure_of_the_model_is_kept_and_the_next_attempt_goes_on():
    table = Table("one")
    record = await table.run(ScriptedModel([calls("add", {"a": 1, "b": 1}), Refused("no", status=400)]))
    assert (record.status, record.failure.kind, record.api_calls) == ("failed", "Refused", 1)
    model = ScriptedModel(adder)
    record = await table.run(model)
    assert (record.status, record.failure, len(model.requests)) == ("completed", None, 1)


@in_loop
@pytest.mark.parametrize("problem", [TimeoutError("the socket"), ValueError("odd"), OSError(2, "No such file")])
async def test_whatever_else_breaks_a_task_is_its_failure_too(problem):
    async def breaks():
        raise problem

    for desk in ({"prepare": breaks}, {}):
        model = ScriptedModel(lambda request: problem)
        record = await Table("one").run(model, **desk)
        assert (record.status, record.failure.kind, record.stop) == ("failed", type(problem).__name__, "error")


@in_loop
async def test_a_machine_that_has_nothing_left_is_tried_again_and_then_fails_the_task():
    tried = []

    async def full():
        tried.append(1)
        raise OSError(28, "No space left on device")

    record = await Table("one", tool_retries=Retries(attempts=3, first=0.001)).run(prepare=full)
    assert (record.status, record.failure.kind, record.stop) == ("failed", "OutOfResources", "harness error")
    assert len(tried) == 3


@in_loop
async def test_a_tool_call_that_could_not_be_run_fails_the_task_and_the_next_attempt_runs_it():
    table = Table("one", tool_retries=Retries(attempts=2, first=0.001))
    graph, record = MessageGraph(), fresh_record(table.task, "recipe", [], None)
    broken = [1, 1]

    def add(a: int, b: int) -> int:
        """Add."""
        if broken:
            raise OSError(24, f"Too many open files {broken.pop()}")
        return a + b

    def agent(model):
        return Agent(model=model, tools=[add], tool_retries=Retries(attempts=2, first=0.001))

    record = await work(table.task, graph, record, Desk(agent=agent(ScriptedModel(adder)), save=table.save))
    assert (record.status, record.stop, record.failure.kind) == ("failed", "harness error", "OutOfResources")
    assert not record.ended
    assert record.api_calls == 1
    graph, record = table.kept
    record = await work(table.task, graph, record, Desk(agent=agent(ScriptedModel(adder)), save=table.save))
    assert (record.status, record.failure, record.api_calls) == ("completed", None, 2)
    assert "Too many" not in str(graph.messages())


@in_loop
async def test_what_the_store_refuses_is_no_failure_of_the_task_and_rises():
    async def full(graph, record):
        raise NotWritten("the disk is full")

    with pytest.raises(NotWritten):
        await Table("one").run(save=full)


@in_loop
async def test_time_is_counted_over_all_attempts():
    moments = iter(range(0, 1000, 4))
    table = Table("one", limits=Limits(seconds=30))
    record = await table.run(ScriptedModel([Refused("no", status=400)]), clock=lambda: next(moments))
    assert record.seconds == 4
    record = await table.run(clock=lambda: next(moments))
    assert (record.status, record.seconds) == ("completed", 8)


@in_loop
async def test_time_that_was_used_up_before_is_not_given_again():
    async def slow(request):
        await asyncio.sleep(0.15)
        return adder(request)

    table = Table("one", limits=Limits(seconds=0.4))
    table.kept = (MessageGraph(), msgspec.structs.replace(fresh_record(table.task, "r", [], None), seconds=0.39))
    record = await table.run(ScriptedModel(slow))
    assert (record.status, record.stop) == ("stopped", "seconds")


@in_loop
async def test_a_conversation_is_scored_once_it_has_ended_and_not_when_it_failed():
    scored = []

    async def score(record, conversation):
        scored.append(record.status)
        return msgspec.structs.replace(record, reward=1.0)

    assert (await Table("one").run(score=score)).reward == 1.0
    assert (await Table("one").run(ScriptedModel([Refused("no", status=400)]), score=score)).reward is None
    assert scored == ["completed"]
