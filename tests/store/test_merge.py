"""Merging takes in everything once, whatever kind of store it comes from, and however often it is interrupted."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stemma import Call, MessageGraph
from stemma.core.fingerprint import fingerprint
from stemma.store import MemoryStore, SQLiteStore, Store
from store.child import finish, python, start
from store.rows import count
from store.sample import agent, assistant, contents, fill, user


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "into.db"


@pytest.fixture
def into(path: Path) -> Iterator[SQLiteStore]:
    with SQLiteStore(path) as store:
        yield store


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SQLiteStore]:
    with SQLiteStore(tmp_path / "source.db") as store:
        fill(store)
        yield store


def saved(name: str, *texts: str, **rest: Any) -> MemoryStore:
    """A store with one graph."""
    store = MemoryStore()
    store.save(MessageGraph([user(text) for text in texts]), name, **rest)
    return store


def test_merging_takes_in_everything(into, source):
    report = into.merge(source)
    assert report.added == [info.name for info in source.graphs()]
    assert (report.same, report.renamed) == ([], {})
    assert contents(into) == contents(source)
    assert into.verify() == []


def test_merging_twice_changes_nothing(into, source, path):
    into.merge(source)
    before = count(path), contents(into), path.read_bytes()
    report = into.merge(source)
    assert (report.added, report.renamed) == ([], {})
    assert report.same == [info.name for info in source.graphs()]
    assert (count(path), contents(into), path.read_bytes()) == before


def test_merging_a_store_into_itself_changes_nothing(source):
    before = contents(source)
    assert source.merge(source).added == []
    assert contents(source) == before


@pytest.mark.parametrize("kinds", ["memory to file", "file to memory", "memory to memory", "there and back"])
def test_stores_of_either_kind_merge_into_stores_of_either_kind(into, source, kinds):
    memory, other = MemoryStore(), MemoryStore()
    fill(memory)
    start, end = {
        "memory to file": (memory, into),
        "file to memory": (source, other),
        "memory to memory": (memory, other),
        "there and back": (source, into),
    }[kinds]
    if kinds == "there and back":
        other.merge(source)
        start = other
    end.merge(start)
    assert contents(end) == contents(start) == contents(source)
    assert end.verify() == []


def test_subagents_calls_and_versions_come_along(into):
    other = MemoryStore()
    graph = agent()
    other.save(graph, "agent", run="r", metadata={"k": 1})
    into.merge(other)
    loaded = into.load("agent")
    assert fingerprint(loaded) == fingerprint(graph)
    assert (len(loaded.reach()), len(loaded.versions), len(loaded.calls())) == (3, 3, 4)
    child, below = loaded.nested(2)
    assert child.nested(1)[0] is below, "one conversation in two places is still one"
    loaded.append(user("and on"))
    into.save(loaded, "agent")
    assert into.verify() == []


def test_runs_come_along_and_keep_what_is_known_of_them_here(into):
    other = saved("a", "U", run="both")
    other.save_run("both", {"from": "there"})
    other.save_run("theirs", {"k": 1})
    into.save_run("both", {"from": "here"})
    into.merge(other)
    assert [(run.name, run.graphs, run.metadata) for run in into.runs()] == [
        ("both", 1, {"from": "here"}),
        ("theirs", 0, {"k": 1}),
    ]


def test_a_name_that_holds_another_conversation_here_is_renamed_by_its_content(into, path):
    into.save(MessageGraph([user("mine")]), "chat", metadata={"whose": "mine"})
    other = saved("chat", "theirs", metadata={"whose": "theirs"})
    new = f"chat~{fingerprint(other.load('chat')).hex()[:8]}"
    report = into.merge(other)
    assert (report.added, report.renamed) == ([new], {"chat": new})
    assert [(info.name, info.metadata["whose"]) for info in into.graphs()] == [("chat", "mine"), (new, "theirs")]
    before = count(path)
    again = into.merge(other)
    assert (again.added, again.same, again.renamed) == ([], [new], {})
    assert count(path) == before


def test_the_new_name_is_the_same_wherever_one_merges(into):
    other = saved("chat", "theirs")
    second = saved("chat", "mine")
    into.save(MessageGraph([user("mine")]), "chat")
    assert into.merge(other).renamed == second.merge(other).renamed
    assert into.merge(second).added == []


def test_a_renamed_conversation_that_went_on_is_not_touched(into):
    into.save(MessageGraph([user("mine")]), "chat")
    other = saved("chat", "theirs")
    (new,) = into.merge(other).added
    graph = into.load(new)
    graph.append(assistant("and on"))
    into.save(graph, new)
    (newer,) = into.merge(other).added
    assert newer.startswith(new)
    assert into.load(newer) == [user("theirs")]
    assert into.load(new) == [user("theirs"), assistant("and on")]
    assert into.merge(other).added == []


def test_the_longest_name_can_be_renamed_too(into):
    name = "x" * 400
    into.save(MessageGraph([user("mine")]), name)
    (new,) = into.merge(saved(name, "theirs")).added
    assert len(new) == 400
    assert into.load(new) == [user("theirs")]
    assert into.merge(saved(name, "theirs")).added == []


def test_what_goes_on_after_a_merge_is_taken_in_by_the_next(into):
    other = MemoryStore()
    graph = MessageGraph([user("U")])
    other.save(graph, "chat")
    into.merge(other)
    other.save(MessageGraph([user("V")]), "another")
    assert into.merge(other).added == ["another"]


def test_bodies_that_are_here_already_are_not_stored_again(into, path):
    graph = MessageGraph([user("U")])
    graph.record(assistant("A"), Call(model="m", tools=[{"name": "f"}]))
    into.save(graph, "mine")
    other = MemoryStore()
    other.save(graph.fork(), "theirs")
    before = count(path)
    into.merge(other)
    after = count(path)
    assert [after[table] - before[table] for table in ("message", "call", "toolset")] == [0, 0, 0]


class Interrupted(Exception):
    """Somebody pulled the plug."""


class Flickering(MemoryStore):
    """A store that can be read a few times only."""

    left = 0

    def load(self, name: str) -> MessageGraph:
        if not self.left:
            raise Interrupted
        self.left -= 1
        return super().load(name)


def many(store: Store, graphs: int) -> None:
    for number in range(graphs):
        graph = MessageGraph([user(f"question {number}")])
        graph.record(assistant("answer"), Call(model="m", params={"n": number}))
        if number % 3 == 0:
            graph[0]["content"] = "another question"
        store.save(graph, f"graph {number:03}", run=f"run {number % 5}")


def test_an_interrupted_merge_is_finished_by_the_next(into):
    source = Flickering()
    many(source, 20)
    for left in (0, 1, 7, 15):
        source.left = left
        with pytest.raises(Interrupted):
            into.merge(source)
        assert len(into.graphs()) == left
        assert into.verify() == []
    source.left = 1000
    report = into.merge(source)
    assert (len(report.same), len(report.added)) == (15, 5)
    assert contents(into) == contents(source)


MERGE = """
    import sys
    from stemma.store import SQLiteStore
    with SQLiteStore(sys.argv[1]) as into, SQLiteStore(sys.argv[2]) as source:
        print("ready", flush=True)
        into.merge(source)
"""


def test_a_merge_that_is_killed_again_and_again_is_finished_in_the_end(path, tmp_path):
    source_path, chance = tmp_path / "source.db", random.Random(7)
    with SQLiteStore(source_path) as source:
        many(source, 150)
        expected = contents(source)
    for _ in range(4):
        process = start(python(MERGE, path, source_path))
        process.stdout.readline()
        time.sleep(chance.uniform(0.01, 0.08))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with SQLiteStore(path) as into:
            assert into.verify() == []
            assert {info.name for info in into.graphs()} <= {info.name for info, _ in expected["graphs"]}
    finish(start(python(MERGE, path, source_path)))
    with SQLiteStore(path) as into:
        assert contents(into) == expected
        assert into.verify() == []
