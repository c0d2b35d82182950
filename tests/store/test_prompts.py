"""Prompts on disk: each token once, and every prompt back as it was."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma import Call, MessageGraph
from stemma.core.call import pack_ids
from stemma.errors import StoreDamaged
from stemma.store import SQLiteStore
from stemma.store.narrow import narrow, widen
from stemma.store.prompts import PromptReader, Seen, Stored, shortened
from store.rows import ask
from token_conversations import Chat, user

IDS = st.lists(st.integers(0, 1), max_size=40).map(pack_ids)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


def token_bytes(path):
    """How many bytes the prompts would have at four bytes an id."""
    return sum(len(widen(own)) for (own,) in ask(path, "SELECT prompt_ids FROM call WHERE prompt_ids IS NOT NULL"))


def long_chat(turns, words=200):
    chat = Chat(user(" ".join(f"w{n}" for n in range(words))))
    for turn in range(turns):
        chat.says(f"reply {turn}").hears(f"result {turn}")
    return chat


@given(IDS, st.lists(st.tuples(IDS, IDS), max_size=4))
def test_a_shortened_prompt_is_whole_again_when_read(prompt, earlier):
    seen = [(row, Seen(*one)) for row, one in enumerate(earlier, 1)]
    stored = shortened(prompt, seen)
    with closing(sqlite3.connect(":memory:")) as db:
        reader = PromptReader(db)
        reader._known = dict(seen)
        assert reader.read(len(seen) + 1, stored, b"") == prompt
    assert stored.base is None or len(widen(stored.own)) + stored.shared * 4 == len(prompt)


def test_each_token_of_a_growing_conversation_is_kept_once(path):
    chat = long_chat(20)
    with SQLiteStore(path) as store:
        store.save(chat.graph, "a")
        assert store.load("a").calls() == chat.graph.calls()
        assert store.verify() == []
    last = chat.graph.calls()[-1].call
    assert token_bytes(path) == len(last.prompt_ids) - sum(len(c.call.sampled_ids) for c in chat.graph.calls()[:-1])


def test_calls_saved_one_after_another_build_on_those_before(path):
    chat = long_chat(1)
    with SQLiteStore(path) as store:
        for turn in range(10):
            store.save(chat.graph, "a")
            chat.says(f"more {turn}").hears("so")
        store.save(chat.graph, "a")
        again = store.load("a")
        again.record({"role": "assistant", "content": "x"}, chat.graph.calls()[-1].call)
        store.save(again, "a")
        assert store.load("a").calls() == again.calls()
        assert store.verify() == []
    assert token_bytes(path) < 2 * len(chat.graph.calls()[-1].call.prompt_ids)


def test_an_edit_near_the_end_and_a_sample_taken_again_cost_only_what_differs(path):
    chat = long_chat(10)
    with SQLiteStore(path) as store:
        store.save(chat.graph, "a")
        before = token_bytes(path)
        chat.graph[-1]["content"] = "edited"
        chat.says("after the edit")
        chat.graph.pop()
        chat.says("and again")
        store.save(chat.graph, "a")
        assert store.load("a").calls() == chat.graph.calls()
        assert store.verify() == []
    assert token_bytes(path) - before < 100


def test_forks_and_other_stores_have_the_same_prompts(path, tmp_path):
    chat = long_chat(5)
    with SQLiteStore(path) as store, SQLiteStore(tmp_path / "other.db") as other:
        store.save(chat.graph, "a")
        fork = store.load("a").fork()
        fork.append(user("on"))
        fork.record({"role": "assistant", "content": "y"}, chat.graph.calls()[-1].call)
        store.save(fork, "b")
        other.merge(store)
        for name, graph in (("a", chat.graph), ("b", fork)):
            assert store.load(name).calls() == other.load(name).calls() == graph.calls()
        assert store.verify() == other.verify() == []


def test_calls_without_tokens_stand_between_calls_that_have_them(path):
    graph = MessageGraph([user("hi")])
    ids = list(range(100))
    for call in (Call(model="m", prompt_ids=ids, sampled_ids=[7]), Call(model="m"), Call(model="m", prompt_ids=ids)):
        graph.record({"role": "assistant", "content": "x"}, call)
    with SQLiteStore(path) as store:
        store.save(graph, "a")
        assert store.load("a").calls() == graph.calls()
        assert store.verify() == []
    assert token_bytes(path) == 400


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE call SET prompt_base = id WHERE prompt_base IS NOT NULL",
        "UPDATE call SET prompt_base = 999 WHERE prompt_base IS NOT NULL",
        "UPDATE call SET prompt_base = 'x' WHERE prompt_base IS NOT NULL",
        "UPDATE call SET prompt_shared = 100000 WHERE prompt_base IS NOT NULL",
        "UPDATE call SET prompt_shared = -1 WHERE prompt_base IS NOT NULL",
        "UPDATE call SET prompt_shared = 3 WHERE prompt_base IS NULL",
        "UPDATE call SET prompt_ids = NULL WHERE prompt_base IS NOT NULL",
    ],
)
def test_a_prompt_that_builds_on_nothing_is_found_and_not_made_up(path, damage):
    with SQLiteStore(path) as store:
        store.save(long_chat(3).graph, "a")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(damage)
    db.close()
    with SQLiteStore(path) as store:
        assert store.verify()
        with pytest.raises(StoreDamaged):
            store.load("a")


def test_reading_a_long_chain_from_its_end_needs_no_more_than_what_fits(path, monkeypatch):
    monkeypatch.setattr("stemma.store.prompts._KEPT_BYTES", 4_000)
    chat = long_chat(30)
    with SQLiteStore(path) as store:
        store.save(chat.graph, "a")
        assert store.load("a").calls() == chat.graph.calls()
        assert store.verify() == []


def test_what_is_not_worth_referring_to_is_written_again():
    seen = Seen(pack_ids(range(10)), b"")
    assert shortened(pack_ids(range(10)), [(1, seen)]) == Stored(None, 0, narrow(pack_ids(range(10))))
