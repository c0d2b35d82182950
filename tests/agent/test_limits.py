"""A limit holds for a conversation and all its subagents together, and is exceeded by no more than one call."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stemma import MessageGraph
from stemma.agent.agent import Agent
from stemma.agent.facts import Stopped
from stemma.agent.limits import AT_ONCE, LimitReached, Limits, Spent
from stemma.agent.loop import Setup, converse
from stemma.agent.subagent import delegation
from stemma.core.call import Call
from stemma.models.prices import Most, Prices, most_of
from stemma.models.protocol import Reply, Request
from stemma.models.scripted import ScriptedModel


class Counting(ScriptedModel):
    """A model whose replies say what they used; it knows how many were asked at once."""

    def __init__(self, script, *, tokens=10, cost=0.01, seconds=0.0):
        super().__init__(script)
        self.usage = {} if tokens is None else {"total_tokens": tokens}
        self.cost, self.seconds, self.now, self.most = cost, seconds, 0, 0

    async def reply(self, request, on_delta=None):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.seconds)
        reply = await super().reply(request, on_delta)
        self.now -= 1
        call = Call(model="m", finish_reason=reply.call.finish_reason, usage=self.usage, cost=self.cost)
        return Reply(message=reply.message, call=call)


def delegates(tasks, turns=0):
    """A script that delegates many tasks at once; each subagent takes some turns, then answers."""

    def script(request):
        if request.messages[-1]["content"] == "go":
            arguments = json.dumps({"tasks": [{"goal": f"task {i}"} for i in range(tasks)]})
            function = {"name": "delegate_task", "arguments": arguments}
            return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
        if sum(message["role"] == "assistant" for message in request.messages) < turns:
            function = {"name": "nothing", "arguments": "{}"}
            return {"content": None, "tool_calls": [{"id": "n", "type": "function", "function": function}]}
        return "done"

    return script


def delegating(model, **limits):
    agent = Agent(model=model, limits=Limits(**limits))
    agent.offer(delegation(agent, []))
    return agent.run_sync("go")


# ── shared by subagents ──────────────────────────────────────────────────────────────────────────────────────────


def test_two_thousand_subtasks_under_a_limit_of_twenty_tokens_ask_twice():
    model = Counting(delegates(2000), tokens=10)
    conversation = delegating(model, tokens=20)
    assert len(model.requests) == 2
    assert conversation.stop_reason == "tokens"
    assert len(list(conversation.graph.reach())) <= 1 + AT_ONCE, "and none is begun that could not ask"
    assert conversation.graph[-1]["content"].endswith("[2000] (not begun: a limit is used up)")


@pytest.mark.parametrize("turns", [1, 2, 7, 60])
def test_turns_are_those_of_a_conversation_and_its_subagents_together(turns):
    model = Counting(delegates(100, turns=3))
    conversation = delegating(model, turns=turns)
    assert (len(model.requests), conversation.stop_reason) == (turns, "turns")


def test_money_is_that_of_a_conversation_and_its_subagents_together():
    model = Counting(delegates(100, turns=3), cost=0.01)
    conversation = delegating(model, cost=0.05)
    assert (len(model.requests), conversation.stop_reason) == (5, "cost")
    assert conversation.cost == pytest.approx(0.05)


def test_time_is_that_of_a_conversation_and_its_subagents_together():
    now = [0.0]
    script = delegates(100)

    def takes_a_second(request):
        now[0] += 1.0
        return script(request)

    model = ScriptedModel(takes_a_second)
    agent = Agent(model=model)
    tool = delegation(agent, [])
    setup = Setup(model=model, tools={tool.name: tool}, limits=Limits(seconds=10), clock=lambda: now[0])
    graph = MessageGraph([{"role": "user", "content": "go"}])

    async def run():
        return [fact async for fact in converse(graph, setup)][-1]

    assert asyncio.run(run()) == Stopped("seconds")
    assert len(model.requests) <= 10 + AT_ONCE, "those in flight when the time was up, and none after"


def test_calls_at_once_are_those_of_a_conversation_and_its_subagents_together():
    model = Counting(delegates(50, turns=2), seconds=0.002)
    delegating(model, turns=None)
    assert len(model.requests) == 3 + 50 * 3
    assert 1 < model.most <= AT_ONCE


def test_a_subagent_asks_the_model_of_the_conversation_that_delegates_with_its_parameters():
    script = delegates(3)
    agent = Agent(model=ScriptedModel([]), params={"temperature": 0.5})
    agent.offer(delegation(agent, []))
    model = ScriptedModel(script)
    changed = agent.changed(model=model, params={"seed": 7})
    assert changed.run_sync("go").answer == "done"
    assert [request.params for request in model.requests] == [{"temperature": 0.5, "seed": 7}] * 5


# ── what cannot be counted ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("limit", "said"), [({"tokens": 1000}, "how many tokens"), ({"cost": 9.0}, "prices")])
def test_a_limit_that_cannot_be_counted_stops_at_once_and_says_what_to_do(limit, said):
    model = Counting(delegates(100), tokens=None, cost=None)
    conversation = delegating(model, **limit)
    assert (len(model.requests), conversation.stop_reason) == (1, next(iter(limit)))
    assert said in conversation.stopped.detail


def test_tokens_are_counted_also_where_the_endpoint_gives_no_total():
    spent = Spent(lambda: 0.0)
    spent.add(Call(model="m", usage={"prompt_tokens": 7, "completion_tokens": 5}))
    assert spent.tokens == 12
    assert spent.reached(Limits(tokens=12)) == "tokens"


# ── reserving ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_call_may_use_is_told_by_its_text_its_bound_and_the_prices():
    request = Request(messages=[{"role": "user", "content": "x" * 300}], params={"max_tokens": 50})
    plain = most_of(ScriptedModel([]), request)
    assert plain.prompt >= 100
    assert (plain.reply, plain.cost) == (50, None)
    assert most_of(ScriptedModel([]), Request(messages=[])) == Most(0, None, None)
    priced = ScriptedModel([])
    priced.prices, priced.params = Prices(prompt=1.0, completion=10.0), {"max_completion_tokens": 80}
    found = most_of(priced, request)
    assert found.reply == 80
    assert found.cost == pytest.approx((found.prompt + 800) / 1e6)


async def spend(spent, limits, sizes, bound=None):
    """Make a call of each size as soon as it may be made; how many were made, and how many at once."""
    made, now, most = [], 0, 0
    params = {} if bound is None else {"max_tokens": bound}
    model = ScriptedModel([])
    model.prices = Prices(prompt=0.0, completion=1000.0)

    async def one(size):
        nonlocal now, most
        try:
            async with spent.reserved(limits, model, Request(messages=[], params=params)) as count:
                now, most = now + 1, max(most, now + 1)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                now -= 1
                made.append(size)
                count(Call(model="m", usage={"total_tokens": size, "completion_tokens": size}, cost=size / 1000))
        except LimitReached:
            pass

    await asyncio.wait_for(asyncio.gather(*(one(size) for size in sizes)), 20)
    return made, most


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=60), st.integers(1, 2000), st.booleans())
def test_with_a_bound_on_replies_a_limit_is_exceeded_by_one_call_at_most(sizes, limit, in_money):
    async def run():
        spent = Spent(lambda: 0.0, at_once=None)
        limits = Limits(turns=None, cost=limit / 1000) if in_money else Limits(turns=None, tokens=limit)
        made, _ = await spend(spent, limits, sizes, bound=100)
        assert sum(made[:-1]) < limit, "the last alone may go beyond"
        assert sum(made) >= limit or len(made) == len(sizes), "and nothing is refused while there is room"

    asyncio.run(run())


def test_without_a_bound_calls_of_one_size_never_exceed_a_limit_and_yet_run_side_by_side():
    async def run():
        made, most = await spend(Spent(lambda: 0.0, at_once=None), Limits(turns=None, tokens=1000), [10] * 500)
        assert sum(made) == 1000
        assert most > 8

    asyncio.run(run())


def test_without_a_bound_the_first_call_is_made_alone():
    async def run():
        spent, limits = Spent(lambda: 0.0, at_once=None), Limits(turns=None, tokens=20)
        made, most = await spend(spent, limits, [1000] * 100)
        assert (made, most) == ([1000], 1)

    asyncio.run(run())


def test_without_limits_nothing_waits():
    async def run():
        _, most = await spend(Spent(lambda: 0.0, at_once=None), Limits(turns=None), [10] * 100)
        assert most == 100

    asyncio.run(run())


def test_a_call_that_waits_and_is_cancelled_lets_the_others_on():
    async def run():
        spent, limits = Spent(lambda: 0.0), Limits(turns=None, tokens=100)
        order = []

        async def one(name, seconds):
            async with spent.reserved(limits, ScriptedModel([]), Request(messages=[])) as count:
                await asyncio.sleep(seconds)
                order.append(name)
                count(Call(model="m", usage={"total_tokens": 1}))

        tasks = [asyncio.ensure_future(one(name, 0.02)) for name in "abcd"]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["a", "c", "d"]

    asyncio.run(run())


def test_a_call_that_failed_is_not_counted_and_its_turn_is_free():
    async def run():
        spent, limits = Spent(lambda: 0.0), Limits(turns=1)
        with pytest.raises(ValueError, match="odd"):
            async with spent.reserved(limits, ScriptedModel([]), Request(messages=[])):
                raise ValueError("odd")
        async with spent.reserved(limits, ScriptedModel([]), Request(messages=[])) as count:
            count(Call(model="m"))
        with pytest.raises(LimitReached):
            async with spent.reserved(limits, ScriptedModel([]), Request(messages=[])):
                pass

    asyncio.run(run())
