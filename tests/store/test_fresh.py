"""A conversation that was laid out elsewhere is kept exactly as the graph it stands for."""

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import messages
from stemma import Call, MessageGraph, open_store
from stemma.core.fingerprint import fingerprint
from stemma.core.fresh import Fresh, lay_out
from stemma.core.message import Message
from stemma.errors import NameTaken
from stemma.store import MemoryStore, SQLiteStore

CALL = Call(model="m", tools=[{"type": "function", "function": {"name": "f"}}], extra={"imported": True})
LINE = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]


def laid_out(line: list, sampled: list[int], call: Call = CALL) -> Fresh:
    numbers = count()
    return lay_out([Message.with_id(m) for m in line], sampled, call, lambda: next(numbers).to_bytes(12, "big"))


def recorded(line: list, sampled: list[int], call: Call = CALL) -> MessageGraph:
    graph = MessageGraph()
    for at, message in enumerate(line):
        graph.record(message, call) if at in sampled else graph.append(message)
    return graph


@given(line=st.lists(messages(), max_size=8), dice=st.randoms(use_true_random=False))
def test_it_is_loaded_as_the_graph_that_was_recorded_message_by_message(line, dice):
    sampled = [at for at, message in enumerate(line) if message["role"] == "assistant" and dice.random() < 0.7]
    expected = fingerprint(recorded(line, sampled))
    fresh = laid_out(line, sampled)
    assert fingerprint(fresh.graph()) == expected
    with TemporaryDirectory() as folder, open_store(Path(folder) / "s.db") as store:
        store.write([store.prepare(fresh, "x", run="r", metadata={"a": 1})])
        assert fingerprint(store.load("x")) == expected
        assert store.metadata("x") == {"a": 1}
        assert store.names("r") == ["x"]
        assert store.verify() == []


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_same_again_changes_nothing_and_another_is_refused_its_name(tmp_path, kind):
    with MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "s.db") as store:
        for _ in range(2):
            store.write([store.prepare(laid_out(LINE, [1]), "x", run="r", metadata={})])
        held = store.counts()
        with pytest.raises(NameTaken):
            store.write([store.prepare(laid_out(LINE, []), "x", run="r", metadata={})])
        assert store.counts() == held
        assert store.load("x") == LINE
        assert store.verify() == []


def test_it_goes_on_as_any_other_graph_does(tmp_path):
    with SQLiteStore(tmp_path / "s.db") as store:
        store.write([store.prepare(laid_out(LINE, [1]), "x")])
        graph = store.load("x")
        graph[0]["content"] = "Q2"
        graph.record({"role": "assistant", "content": "B"}, CALL)
        store.save(graph, "x")
        assert fingerprint(store.load("x")) == fingerprint(graph)
        assert len(store.load("x").versions) == 1
        assert store.verify() == []


def test_messages_that_are_there_already_are_kept_once(tmp_path):
    with SQLiteStore(tmp_path / "s.db") as store:
        twice = [*LINE, *LINE]
        store.write([store.prepare(laid_out(LINE, [1]), "x"), store.prepare(laid_out(twice, [3]), "y")])
        assert store.counts() == {"graphs": 2, "lines": 2, "messages": 2, "calls": 2}
        assert store.load("y") == twice
        assert store.verify() == []
