"""Promises of the replayed model: the same context gets the same reply, another one is an error that shows where."""

import pytest

from faultserver import in_loop
from stemma import Call, MessageGraph
from stemma.models.errors import NoMoreReplies
from stemma.models.protocol import Delta, Request
from stemma.models.replay import ReplayModel

USER = {"role": "user", "content": "Name a prime."}


def recorded(*replies: str) -> MessageGraph:
    graph = MessageGraph([USER])
    for i, reply in enumerate(replies):
        graph.record({"role": "assistant", "content": reply}, Call(model="m", id=f"{i}"))
        graph.append({"role": "user", "content": "Another."})
    return graph


def ask(*contents: str) -> Request:
    roles = ("user", "assistant")
    return Request(messages=[{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)])


@in_loop
async def test_the_same_context_gets_the_same_reply():
    model = ReplayModel([recorded("2", "3")])
    shown: list[Delta] = []
    first = await model.reply(ask("Name a prime."), shown.append)
    second = await model.reply(ask("Name a prime.", "2", "Another."))
    assert (first.message["content"], second.message["content"]) == ("2", "3")
    assert (first.call.id, second.call.id) == ("0", "1")
    assert shown == [Delta("text", "2")]
    await model.close()


@in_loop
async def test_several_samples_of_one_context_come_in_order_and_then_no_more():
    model = ReplayModel([recorded("2"), recorded("3")])
    replies = await model.samples(ask("Name a prime."), 2)
    assert [reply.message["content"] for reply in replies] == ["2", "3"]
    with pytest.raises(NoMoreReplies, match="no more"):
        await model.reply(ask("Name a prime."))


@in_loop
async def test_replies_of_superseded_lines_are_known_too():
    graph = recorded("2")
    graph[0]["content"] = "Name an even number."
    reply = await ReplayModel([graph]).reply(ask("Name a prime."))
    assert reply.message["content"] == "2"


@in_loop
async def test_another_context_is_an_error_that_shows_the_first_difference():
    model = ReplayModel([recorded("2", "3")])
    with pytest.raises(NoMoreReplies, match=r"at message 2 .*Again\..*Another\."):
        await model.reply(ask("Name a prime.", "2", "Again."))
    with pytest.raises(NoMoreReplies, match="holds no replies"):
        await ReplayModel([]).reply(ask("hi"))
