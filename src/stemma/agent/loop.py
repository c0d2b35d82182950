"""The loop: ask, record, run the tools, record, repeat.

It yields facts and opens no files. Each fact is true of the graph when it is yielded, and the next step starts only
when the listener comes back for more: who saves the graph at every fact loses nothing but the step in flight. Started
on a graph that ends in unanswered tool calls, as a crash leaves it, it answers those first. Wrong tool names and
unreadable arguments are answered with an error and stay recorded as sampled; a call that the harness could not run
stays open, and the conversation stops there. Tool output is data: it decides nothing here. `tests/agent/test_loop.py`
proves it.
"""

import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from stemma.agent.compaction import INSTRUCTION, Compaction, is_due, plan, summary_message
from stemma.agent.context import Guidance, noted, request_for
from stemma.agent.facts import Asking, Compacted, Fact, Replied, Stopped, StopReason
from stemma.agent.limits import LimitReached, Limits, Shared, Spent
from stemma.agent.tool_turn import answer_open_calls
from stemma.core.graph import MessageGraph
from stemma.errors import HarnessFailed
from stemma.formats.training import is_answer
from stemma.models.errors import ContextTooLong, ModelError
from stemma.models.protocol import Model, OnDelta, Reply
from stemma.models.redact import RedactedDeltas, redacted_reply
from stemma.models.retry import Chance, Retries
from stemma.redact import NOTHING_SECRET, Redactor
from stemma.tools.tool import Tool
from stemma.tools.workspace import Workspace


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """All that stays the same while a conversation runs."""

    model: Model
    tools: Mapping[str, Tool] = {}
    params: Mapping[str, Any] = {}
    limits: Limits = Limits()
    guidance: Guidance = Guidance()
    notes: Mapping[str, Any] = {}
    """What every call must say beside that, such as a fence that is open."""
    compaction: Compaction = Compaction()
    on_delta: OnDelta | None = None
    tool_retries: Retries = Retries()
    """How often, and how patiently, to try a tool call that the harness could not run."""
    spent: Spent | None = None
    """The account of the conversation that this one works for, if it is a subagent's."""
    redactor: Redactor = NOTHING_SECRET
    """Takes secrets out of replies, of what is shown while they stream, and of failures."""
    clock: Callable[[], float] = time.monotonic
    chance: Chance = random.random


async def converse(graph: MessageGraph, setup: Setup, workspace: Workspace | None = None) -> AsyncIterator[Fact]:
    """Go on until there is an answer, a limit or a failure."""
    spent = setup.spent or Spent(setup.clock)
    while True:
        async for fact in answer_calls(graph, setup, workspace, spent):
            yield fact
            if isinstance(fact, Stopped):
                return
        try:
            spent.check(setup.limits)
            async for fact in _make_room(graph, setup, spent):
                yield fact
            yield Asking(spent.turns + 1)
            reply = await _ask(graph, setup, spent)
        except LimitReached as reached:
            yield Stopped(reached.limit, reached.detail)
            return
        except ContextTooLong as problem:
            yield Stopped("context", setup.redactor.text(str(problem)))
            return
        except ModelError as problem:
            yield Stopped("model error", setup.redactor.text(f"{type(problem).__name__}: {problem}"))
            return
        yield Replied(reply)
        if not reply.message.get("tool_calls"):
            yield Stopped(_how_it_ended(reply))
            return


async def answer_calls(
    graph: MessageGraph, setup: Setup, workspace: Workspace | None, spent: Spent
) -> AsyncIterator[Fact]:
    """Answer the open calls, or stop: what the harness could not do is never told to the model."""
    shares = Shared(setup.model, setup.params, setup.limits, spent)
    try:
        async for fact in answer_open_calls(
            graph, setup.tools, workspace, setup.clock, shares, setup.tool_retries, setup.chance
        ):
            yield fact
    except HarnessFailed as problem:
        yield Stopped("harness error", setup.redactor.text(f"{type(problem).__name__}: {problem}"))


async def _ask(graph: MessageGraph, setup: Setup, spent: Spent, *, with_tools: bool = True) -> Reply:
    """Ask the model, as soon as there is room for one more call, and record what it said."""
    schemas = [tool.schema() for tool in setup.tools.values()] if with_tools else None
    request = request_for(graph, setup.guidance, schemas, setup.params)
    shown = RedactedDeltas(setup.on_delta, setup.redactor) if setup.on_delta is not None else None
    async with spent.reserved(setup.limits, setup.model, request) as count:
        reply = await setup.model.reply(request, shown)
        count(reply.call)
    if shown is not None:
        shown.end()
    reply = redacted_reply(reply, setup.redactor)
    if notes := {**setup.guidance.notes(), **setup.notes}:
        reply = msgspec.structs.replace(reply, call=noted(reply.call, notes))
    graph.record(reply.message, reply.call)
    return reply


def _how_it_ended(reply: Reply) -> StopReason:
    if reply.call.finish_reason == "length" and reply.call.extra.get("cut") != "thought":
        return "length"
    return "answer" if is_answer(reply.message) else "empty"


async def _make_room(graph: MessageGraph, setup: Setup, spent: Spent) -> AsyncIterator[Fact]:
    """Shorten the context if the next question would near the model's window."""
    recorded, window = graph.last_call(), setup.model.context_window
    if recorded is None or window is None:
        return
    waiting = [graph.message(i) for i in range(recorded.at + 1, len(graph))]
    if not is_due(setup.compaction, window, recorded.call, waiting):
        return
    messages = graph.messages()
    cut = plan(messages, setup.compaction.keep_last)
    if cut is None:
        raise ContextTooLong("the context nears the model's window and nothing in it can be summarised")
    graph.append({"role": "user", "content": INSTRUCTION})
    try:
        reply = await _ask(graph, setup, spent, with_tools=False)
    except BaseException:
        graph.pop()  # leaves no trace: nothing was sampled after it
        raise
    said = reply.message.get("content")
    if not isinstance(said, str) or not said.strip():
        raise ContextTooLong("the context nears the model's window and the model gave no summary of it")
    with graph.edit(reason="compaction"):
        graph[cut.start :] = [summary_message(said), *messages[cut.stop :]]
    yield Compacted(len(messages), len(graph), reply)
