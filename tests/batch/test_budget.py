import asyncio
import fcntl
from contextlib import contextmanager

import pytest

from batches import adder, adding_agent, calls, records_of
from stemma.agent.agent import Agent
from stemma.agent.limits import Limits
from stemma.agent.subagent import delegation
from stemma.batch.batch import run_batch
from stemma.batch.budget import BadBudget, Budget, read_budget
from stemma.batch.progress import Spending
from stemma.core.call import Call
from stemma.models.hermes_model import HermesModel
from stemma.models.openai_api import OpenAIModel
from stemma.models.prices import Prices
from stemma.models.protocol import Reply
from stemma.models.scripted import ScriptedModel


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("$5", Budget(cost=5.0)),
        ("2.50$", Budget(cost=2.5)),
        ("3 usd", Budget(cost=3.0)),
        ("500 tokens", Budget(tokens=500)),
        ("2M tokens", Budget(tokens=2_000_000)),
        ("1.5k tokens", Budget(tokens=1500)),
    ],
)
def test_a_budget_is_written_as_people_write_it(text, budget):
    assert read_budget(text) == budget


@pytest.mark.parametrize("text", ["5", "", "$", "five dollars", "-3 usd", "$5 tokens", "2M"])
def test_what_is_neither_money_nor_tokens_is_refused(text):
    with pytest.raises(BadBudget, match="money or tokens"):
        read_budget(text)


def test_a_budget_is_used_up_when_it_is_reached():
    assert Budget().exceeded(Spending(10**9, 1e9)) is None
    assert Budget(tokens=500).exceeded(Spending(499)) is None
    assert "500 tokens" in Budget(tokens=500).exceeded(Spending(500))
    assert "$0.3" in Budget(cost=0.3).exceeded(Spending(0, sum([0.1] * 3)))
    assert Budget(cost=0.3).exceeded(Spending(10**9, None)) is None, "what is not known is not spent"


# ── a run within its budget ──────────────────────────────────────────────────────────────────────────────────────


class Counting(ScriptedModel):
    """A model whose replies say what they used."""

    def __init__(self, script, *, tokens=100, cost=0.01, name="scripted"):
        super().__init__(script, name=name)
        self.usage, self.cost = {} if tokens is None else {"total_tokens": tokens}, cost
        self.now = self.most = 0

    async def reply(self, request, on_delta=None):
        reply = await super().reply(request, on_delta)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.002)
        self.now -= 1
        call = Call(model="m", finish_reason=reply.call.finish_reason, usage=self.usage, cost=self.cost)
        return Reply(message=reply.message, call=call)


def run(folder, model, budget, rows=40, **more):
    agent = more.pop("agent", None) or adding_agent(model)
    batch = run_batch(
        [f"p{i}" for i in range(rows)], agent=agent, name="r", folder=folder, budget=budget, amend=True, **more
    )
    return batch, list(batch)


@pytest.mark.parametrize("budget", [Budget(tokens=1000), Budget(cost=0.1)])
def test_many_at_once_use_no_more_than_the_budget_and_go_on_with_a_larger_one(tmp_path, budget):
    model = Counting(adder)
    batch, results = run(tmp_path, model, budget, concurrency=30)
    assert len(model.requests) == 10, "each uses a tenth"
    assert "is used up" in batch.progress.stopping
    assert len(results) < 10
    records = records_of(tmp_path, "r").values()
    assert sum(record.api_calls for record in records) == 10, "all that was paid for is kept"
    assert {record.status for record in records} <= {"completed", "running"}
    again = Counting(adder)
    run(tmp_path, again, budget, concurrency=30)
    assert again.requests == [], "what was spent before counts"
    batch, _ = run(tmp_path, again, Budget(tokens=10**6, cost=100.0), concurrency=30)
    assert len(again.requests) == 80 - 10
    assert batch.statistics["tasks"]["completed"] == 40


def test_a_budget_is_exceeded_by_one_call_at_most_when_calls_are_bounded(tmp_path):
    model = Counting(adder, tokens=90)
    agent = adding_agent(model, params={"max_tokens": 90})
    run(tmp_path, model, Budget(tokens=1000), agent=agent, concurrency=30)
    assert 1000 <= 90 * len(model.requests) <= 1090


def delegating(tasks, **usage):
    """An agent that gives so many tasks to subagents, and its model."""

    def delegates(request):
        if request.messages[0]["role"] == "user":
            if len(request.messages) == 1:
                return calls("delegate_task", {"tasks": [{"goal": f"task {i}"} for i in range(tasks)]})
            return {"content": "Done.", "reasoning": "r"}
        return "done"

    model = Counting(delegates, **usage)
    agent = Agent(model=model)
    agent.offer(delegation(agent, []))
    return agent, model


def test_subtasks_ask_no_more_at_once_than_the_run_may(tmp_path):
    agent, model = delegating(12)
    run(tmp_path, model, None, rows=3, agent=agent, concurrency=2)
    assert (len(model.requests), model.most) == (3 * 14, 2)


def test_subtasks_count_for_the_budget_of_the_run(tmp_path):
    agent, model = delegating(2000, tokens=10)
    batch, results = run(tmp_path, model, Budget(tokens=20), rows=1, agent=agent)
    assert (len(model.requests), results) == (2, [])
    assert "20 tokens" in batch.progress.stopping
    assert {record.status for record in records_of(tmp_path, "r").values()} == {"running"}
    run(tmp_path, model, Budget(tokens=20), rows=1, agent=agent)
    assert len(model.requests) == 2, "what was paid for and could not be kept counts as well"


def test_a_budget_that_cannot_be_counted_stops_with_the_first_reply_and_says_what_to_do(tmp_path):
    model = Counting(adder, tokens=None, cost=None)
    batch, _ = run(tmp_path / "money", model, Budget(cost=5.0), concurrency=30)
    assert len(model.requests) == 1
    assert "models.NAME.prices" in batch.progress.stopping
    batch, _ = run(tmp_path / "tokens", model, Budget(tokens=5000), concurrency=30)
    assert len(model.requests) == 2
    assert "do not say how many tokens" in batch.progress.stopping


def test_money_without_prices_is_refused_before_anything_is_asked(tmp_path):
    model = OpenAIModel("m", "http://127.0.0.1:1/v1")
    for agent, more in (
        (Agent(model=model), {"budget": Budget(cost=5.0)}),
        (Agent(model=HermesModel(model)), {"budget": Budget(cost=5.0)}),
        (Agent(model=model, limits=Limits(cost=0.5)), {}),
    ):
        with pytest.raises(BadBudget, match=r"in dollars needs prices.*models\.NAME\.prices.*OpenAIModel"):
            run_batch(["p"], agent=agent, name="r", folder=tmp_path, **more)
    with pytest.raises(BadBudget, match=r"row 1: a limit in dollars needs prices"):
        run_batch([{"prompt": "p", "limits": {"cost": 1}}], agent=Agent(model=model), name="r", folder=tmp_path).plan()
    priced = OpenAIModel("m", "http://127.0.0.1:1/v1", prices=Prices(prompt=1, completion=2))
    run_batch(["p"], agent=Agent(model=priced), name="r", folder=tmp_path, budget=Budget(cost=5.0)).plan()
    says = OpenAIModel("m", "https://openrouter.ai/api/v1")
    run_batch(["p"], agent=Agent(model=says), name="r", folder=tmp_path, budget=Budget(cost=5.0)).plan()


def test_two_processes_do_not_each_spend_the_budget_of_one_run(tmp_path):
    with held_elsewhere(tmp_path / "r"), pytest.raises(BadBudget, match="another process runs 'r' within a budget"):
        run(tmp_path, Counting(adder), Budget(tokens=100))


@contextmanager
def held_elsewhere(folder):
    folder.mkdir()
    with (folder / "budget.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
