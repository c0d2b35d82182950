"""Promises of the scripted model."""

import doctest
import importlib

import pytest

from faultserver import in_loop
from stemma.models.errors import NoMoreReplies, Unreachable
from stemma.models.protocol import Delta, Request
from stemma.models.scripted import ScriptedModel


@pytest.mark.parametrize("name", ["completion", "prices", "retry", "scripted", "sse"])
def test_the_examples_in_the_docs_run(name):
    found = doctest.testmod(importlib.import_module(f"stemma.models.{name}"))
    assert found.attempted
    assert not found.failed


@in_loop
async def test_replies_come_in_order_and_then_no_more():
    model = ScriptedModel(["Hello.", {"content": None, "tool_calls": []}], name="s", context_window=9)
    shown: list[Delta] = []
    first = await model.reply(Request(messages=[], params={"seed": 1}), shown.append)
    assert first.message == {"role": "assistant", "content": "Hello."}
    assert (first.call.model, first.call.params, first.call.finish_reason) == ("s", {"seed": 1}, "stop")
    assert shown == [Delta("text", "Hello.")]
    await model.reply(Request(messages=[]))
    with pytest.raises(NoMoreReplies, match="after 2 replies"):
        await model.reply(Request(messages=[]))
    assert len(model.requests) == 3
    await model.close()


@in_loop
async def test_a_function_answers_by_the_context_and_errors_are_the_models():
    async def answer(request: Request) -> str | Exception:
        return Unreachable("gone") if not request.messages else f"{len(request.messages)}"

    model = ScriptedModel(answer)
    replies = await model.samples(Request(messages=[{"role": "user", "content": "hi"}]), 2)
    assert [reply.message["content"] for reply in replies] == ["1", "1"]
    with pytest.raises(Unreachable):
        await model.reply(Request(messages=[]))


@in_loop
async def test_a_call_makes_the_finish_reason():
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    reply = await ScriptedModel([{"content": None, "tool_calls": [call]}]).reply(Request(messages=[]))
    assert reply.call.finish_reason == "tool_calls"
