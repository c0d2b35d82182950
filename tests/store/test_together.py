"""Saves of one event loop, written together: whole, in order, and not taken back."""

import asyncio

import pytest

from stemma import Call, MessageGraph, open_store
from stemma.errors import NameTaken
from stemma.store.together import Together


def chat(text):
    graph = MessageGraph([{"role": "user", "content": text}])
    graph.record({"role": "assistant", "content": text.upper()}, Call(model="m"))
    return graph


def test_saves_of_many_conversations_are_on_disk_when_they_return(tmp_path):
    async def many(store):
        saves = Together(store)
        await asyncio.gather(*(saves.save(chat(f"c{i}"), f"c{i}", run="r", metadata={"n": i}) for i in range(50)))
        with open_store(tmp_path / "x.db", create=False) as other:
            assert len(other.names("r")) == 50
            assert other.metadata("c7") == {"n": 7}

    with open_store(tmp_path / "x.db") as store:
        asyncio.run(many(store))
        assert store.verify() == []


def test_a_graph_is_kept_as_it_was_when_its_save_was_asked_for(tmp_path):
    async def one(store):
        saves, graph = Together(store), chat("hello")
        saving = asyncio.ensure_future(saves.save(graph, "x", run="r", metadata={}))
        await asyncio.sleep(0)
        graph.append({"role": "user", "content": "later"})
        await saving
        assert len(store.load("x")) == 2
        await saves.save(graph, "x", run="r", metadata={})
        assert len(store.load("x")) == 3

    with open_store(tmp_path / "x.db") as store:
        asyncio.run(one(store))


def test_one_save_that_is_refused_does_not_take_the_others_with_it(tmp_path):
    async def several(store):
        store.save(chat("first"), "taken")
        saves = Together(store)
        names = ["a", "taken", "b"]
        done = await asyncio.gather(
            *(saves.save(chat(name), name, run="r", metadata={}) for name in names), return_exceptions=True
        )
        assert any(isinstance(outcome, NameTaken) for outcome in done)
        assert {"a", "b"} <= set(store.names("r"))

    with open_store(tmp_path / "x.db") as store:
        asyncio.run(several(store))
        assert store.verify() == []


def test_who_stops_waiting_does_not_take_the_save_back(tmp_path):
    async def leave(store):
        saves = Together(store)
        saving = asyncio.ensure_future(saves.save(chat("x"), "x", run="r", metadata={}))
        await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        await asyncio.sleep(0.05)
        assert store.names() == ["x"]

    with open_store(tmp_path / "x.db") as store:
        asyncio.run(leave(store))
