"""What the SQLite store promises of its file, counted and compared from outside it."""

import asyncio
import fcntl
import hashlib
import os
import re
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stemma.store
from hostile import json_values, messages, texts
from stemma import Call, MessageGraph, open_store
from stemma.core.canonical import canonical, encode
from stemma.core.fingerprint import fingerprint
from stemma.errors import (
    BadMessage,
    BadName,
    NameTaken,
    NotFound,
    NotWritten,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreMissing,
    StoreTooNew,
)
from stemma.store import MemoryStore, SQLiteStore
from store.child import finish, python, run, start
from store.rows import TABLES, added, ask, count

CALL = Call(model="m")


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    with SQLiteStore(path) as opened:
        yield opened


def files(folder: Path) -> dict[str, str]:
    """Every file of a folder, by the hash of its bytes."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the store as another writer would."""
    with open(f"{path}-lock", "a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ── what a save costs ────────────────────────────────────────────────────────────────────────────────────────────


def test_one_message_more_on_ten_thousand_is_one_message_and_one_line_written(store, path):
    graph = MessageGraph([user(f"message {i}") for i in range(10_000)])
    store.save(graph, "long")
    before = count(path)
    graph.append(user("one more"))
    store.save(graph, "long")
    assert added(before, count(path)) == {"message": 1, "line": 1}
    assert ask(path, "SELECT length(added) FROM line ORDER BY id DESC LIMIT 1")[0][0] < 10


def test_a_loaded_graph_goes_on_as_cheaply_as_the_handle_that_was_saved(store, path):
    store.save(MessageGraph([user(str(i)) for i in range(1000)]), "long")
    before = count(path)
    loaded = store.load("long")
    loaded.append(user("one more"))
    store.save(loaded, "long")
    assert added(before, count(path)) == {"message": 1, "line": 1}


def test_saving_what_is_saved_writes_nothing(store, path):
    graph = MessageGraph([user("U")])
    graph.record(assistant("A"), CALL)
    graph[0]["content"] = "V"
    store.save(graph, "a", run="r", metadata={"k": 1})
    before = count(path), files(path.parent)
    store.save(graph, "a")
    store.save(store.load("a"), "a")
    store.save(graph.fork(), "a")
    assert (count(path), files(path.parent)) == before


def test_a_head_that_changes_before_each_call_costs_two_lines_a_turn(store, path):
    graph = MessageGraph([user(f"message {i}") for i in range(200)])
    graph.record(assistant("the first"), CALL)
    store.save(graph, "agent")
    for turn in range(50):
        before = count(path)
        graph[0]["content"] = f"it is now {turn} o'clock"
        graph.record(assistant(f"reply {turn}"), Call(model="m", params={"turn": turn}))
        store.save(graph, "agent")
        assert added(before, count(path)) == {"message": 2, "line": 2, "call": 1, "version": 1, "placed": 1}
    assert ask(path, "SELECT max(length(added)) FROM line")[0][0] < 4 * 50, "in runs, not message by message"
    assert fingerprint(store.load("agent")) == fingerprint(graph)


def test_a_head_that_changed_before_each_of_fifty_calls_is_two_lines_a_turn_also_when_saved_at_the_end(store, path):
    graph = MessageGraph([user(f"message {i}") for i in range(200)])
    for turn in range(50):
        graph[0]["content"] = f"it is now {turn} o'clock"
        graph.record(assistant(f"reply {turn}"), CALL)
    store.save(graph, "agent")
    assert count(path)["line"] < 2 * 50
    assert fingerprint(store.load("agent")) == fingerprint(graph)


def test_a_body_is_stored_once_whoever_says_it(store, path):
    for name, of in (("a", "run-1"), ("b", "run-1"), ("c", "run-2")):
        graph = MessageGraph([user("the same")])
        graph.record(assistant("the same reply"), Call(model="m", tools=[{"name": "f"}]))
        store.save(graph, name, run=of)
    found = count(path)
    assert (found["message"], found["toolset"], found["call"], found["run"]) == (2, 1, 3, 2)


def test_two_calls_alike_in_everything_are_two_calls(store, path):
    graph = MessageGraph([user("U")])
    for _ in range(2):
        graph.record(assistant("A"), CALL)
        graph.pop()
    store.save(graph, "a")
    store.save(graph.fork(), "b")
    assert count(path)["call"] == 2
    assert [call.version for call in store.load("b").calls()] == [0, 1]


def test_token_ids_that_are_none_are_not_taken_for_ids_that_are_not_known(store):
    for name, call in {"a": CALL, "b": Call(model="m", prompt_ids=[], sampled_ids=[], logprobs=[])}.items():
        graph = MessageGraph([user("U")])
        graph.record(assistant("A"), call)
        store.save(graph, name)
        assert store.load(name).calls() == graph.calls()


def test_equal_calls_of_two_subagents_are_two_and_those_of_a_fork_are_one(store, path):
    """In memory, on disk, and in another store."""
    asked = MessageGraph([user("task")])
    asked.record(assistant("A"), CALL)
    asked_again = MessageGraph([user("task")])
    asked_again.record(assistant("A"), CALL)
    parent = MessageGraph()
    children = (asked, asked.fork(), asked_again)
    for number, child in enumerate(children):
        parent.append({"role": "tool", "tool_call_id": str(number), "content": ""}, contains=child)
    store.save(parent, "a")
    elsewhere = MemoryStore()
    elsewhere.merge(store)
    for graph in (parent, store.load("a"), elsewhere.load("a")):
        assert len(graph.rows()) == 2
    assert count(path)["call"] == 2
    assert store.verify() == []


def test_a_line_that_was_left_is_no_finding(store):
    """An edit that breaks no prefix leaves no version; what was saved before it stays where later lines began."""
    graph = MessageGraph([user("U")])
    for new in ([user("V")], [], [user("W"), user("X")], [user("U")], []):
        store.save(graph, "a")
        store.save(graph, "b")
        graph[:] = new
        store.save(graph, "a")
        assert store.load("a") == new
        assert store.verify() == []
    assert store.graphs()[0].tip is None


# ── what goes in comes out ───────────────────────────────────────────────────────────────────────────────────────

HOSTILE = {
    "a lone high surrogate": "\ud83d",
    "a lone low surrogate": "\ude00",
    "a split pair": "\ud83d\ude00",
    "NUL": "a\x00b",
    "line separators": "\u2028\u2029\x85\r\n",
    "controls": "".join(map(chr, range(32))) + "\x7f\x9b31m",
    "bidi": "\u202e\u2066",
    "no characters": "\ufffe\uffff\U0010ffff",
    "a mebibyte": ("a" * 1023 + "\ud800") * 1024,
    "a mebibyte of NUL": "\x00" * (1 << 20),
    "true": True,
    "one": 1,
    "one point nought": 1.0,
    "minus nought": -0.0,
    "the largest": 2**64 - 1,
    "the least": -(2**63),
    "the smallest": 5e-324,
    "nothing": None,
    "parts": [{"type": "text", "text": "\udfff"}, {"type": "text", "text": "", "": {}}],
}


def hostile_graph(value: Any) -> MessageGraph:
    """A graph that has a value wherever one may stand; a large one in one place only."""
    if isinstance(value, str) and len(value) > 1000:
        graph = MessageGraph([user(value)])
        graph.record(assistant("A"), CALL)
        return graph
    arguments = '{"a": 1, "a": 2, "a": NaN' + (value[:100] if isinstance(value, str) else "")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    graph = MessageGraph([{"z": value, "role": "user", "content": value, "a": {"\ud800": value}}])
    asked = {"role": "assistant", "content": value, "reasoning": value, "tool_calls": [call]}
    graph.record(asked, Call(model="\ud800\x00", tools=[{"f": value}], params={"p": value}, extra={"\x00": value}))
    child = MessageGraph([user(value)])
    graph.append({"role": "tool", "tool_call_id": "\udfff", "content": value}, contains=child)
    graph[0]["content"] = [value]
    return graph


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_come_out_as_they_went_in(path, value):
    graph = hostile_graph(value)
    with SQLiteStore(path) as store:
        store.save(graph, "a", run="r", metadata={"\udfff": value})
        store.save_run("r", {"k": value})
    with SQLiteStore(path) as store:
        loaded = store.load("a")
        assert encode(loaded.lines()) == encode(graph.lines())  # key order too
        assert encode([row.messages for row in loaded.rows()]) == encode([row.messages for row in graph.rows()])
        assert [call.call.parts() for call in loaded.calls()] == [call.call.parts() for call in graph.calls()]
        assert (loaded.tip, fingerprint(loaded)) == (graph.tip, fingerprint(graph))
        assert canonical(store.graphs()[0].metadata) == canonical({"\udfff": value})
        assert canonical(store.runs()[0].metadata) == canonical({"k": value})
        assert store.verify() == []


def test_values_that_python_calls_equal_are_different_messages(store, path):
    graph = MessageGraph(user(value) for value in (True, 1, 1.0, False, 0, 0.0, -0.0))
    store.save(graph, "a")
    assert count(path)["message"] == 7
    found = [m["content"] for m in store.load("a").messages()]
    assert [repr(value) for value in found] == ["True", "1", "1.0", "False", "0", "0.0", "-0.0"]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(new=st.lists(messages(), max_size=4), metadata=st.dictionaries(texts(2), json_values(4), max_size=3))
def test_any_message_comes_out_as_it_went_in(store, new, metadata):
    graph = MessageGraph(new)
    name = f"graph {len(store.graphs())}"
    store.save(graph, name, metadata=metadata)
    loaded = store.load(name)
    assert canonical(loaded.messages()) == canonical(new)
    assert fingerprint(loaded) == fingerprint(graph)
    assert canonical(next(info.metadata for info in store.graphs() if info.name == name)) == canonical(metadata)


def test_of_equal_messages_the_keys_keep_the_order_in_which_they_came_first(store):
    """The order of keys is no part of what a message is, and a body is stored once."""
    store.save(MessageGraph([{"role": "user", "content": "U"}]), "a")
    store.save(MessageGraph([{"content": "U", "role": "user"}]), "b")
    assert [list(m) for m in store.load("b").messages()] == [["role", "content"]]


# ── names, runs and metadata ─────────────────────────────────────────────────────────────────────────────────────

BAD_NAMES = ["", " ", "\n", "a\tb", "a\x00", "\ud800", "\u202ea", "\u2028", "\x1b[31m", "x" * 401, None, 5, b"a"]


@pytest.mark.parametrize("kind", [SQLiteStore, MemoryStore])
@pytest.mark.parametrize("bad", BAD_NAMES, ids=ascii)
def test_a_name_that_no_terminal_can_show_is_refused(kind, path, bad):
    with kind(path) if kind is SQLiteStore else kind() as store:
        graph = MessageGraph([user("U")])
        with pytest.raises(BadName):
            store.save(graph, bad)
        with pytest.raises(BadName):
            store.save_run(bad, {})
        if bad is not None:
            with pytest.raises(BadName):
                store.save(graph, "fine", run=bad)
        assert (store.graphs(), store.runs(), store.verify()) == ([], [], [])


@pytest.mark.parametrize("name", ["é", "a/b c", "😀", "x" * 400, "'; DROP TABLE graph; --", "a~", "..", "%s{}"])
def test_other_names_are_just_names(store, name):
    store.save(MessageGraph([user("U")]), name, run=name)
    assert [(info.name, info.run) for info in store.graphs(run=name)] == [(name, name)]
    assert store.load(name) == [user("U")]
    with pytest.raises(NotFound):
        store.load(name + "'")


def test_run_and_metadata_stay_until_others_are_given(store):
    graph = MessageGraph([user("U")])
    store.save(graph, "a", run="one", metadata={"k": [1, {"x": None}]})
    graph.append(user("V"))
    store.save(graph, "a")
    info = store.graphs()[0]
    assert (info.run, info.metadata, info.messages, info.tip) == ("one", {"k": [1, {"x": None}]}, 2, graph.tip)
    store.save(graph, "a", run="two", metadata={})
    assert [(info.run, info.metadata) for info in store.graphs()] == [("two", {})]
    assert [(one.name, one.graphs) for one in store.runs()] == [("one", 0), ("two", 1)]
    store.save_run("one", {"k": 1})
    store.save(graph, "b", run="one")
    assert [(one.name, one.graphs, one.metadata) for one in store.runs()] == [("one", 1, {"k": 1}), ("two", 1, {})]
    assert ([info.name for info in store.graphs("one")], store.graphs("three")) == (["b"], [])
    assert store.verify() == []


def test_metadata_that_is_not_json_is_refused_and_nothing_is_saved(store):
    with pytest.raises(BadMessage):
        store.save(MessageGraph([user("U")]), "a", run="r", metadata={"k": {1, 2}})
    with pytest.raises(BadMessage):
        store.save_run("r", {"k": float("nan")})
    assert (store.graphs(), store.runs()) == ([], [])


def test_metadata_that_another_handle_gave_makes_no_handle_stale(store):
    graph = MessageGraph([user("U")])
    store.save(graph, "a")
    store.save(store.load("a"), "a", run="r", metadata={"seen": True})
    graph.append(user("V"))
    store.save(graph, "a")
    assert [(info.run, info.metadata, info.messages) for info in store.graphs()] == [("r", {"seen": True}, 2)]


def test_a_name_that_holds_another_conversation_is_refused(store):
    store.save(MessageGraph([user("U")]), "a")
    with pytest.raises(NameTaken, match="'a' holds another conversation"):
        store.save(MessageGraph([user("V")]), "a")
    store.save(MessageGraph([user("U")]), "a")  # says the same, so it may go on there
    assert store.verify() == []


def test_each_name_keeps_the_subagent_as_it_was_saved_under_it(store):
    child = MessageGraph([user("task")])
    parents = {name: MessageGraph([user(name)]) for name in ("a", "b")}
    for name, parent in parents.items():
        parent.append({"role": "tool", "tool_call_id": "1", "content": ""}, contains=child)
        store.save(parent, name)
    child.append(assistant("done"))
    store.save(parents["a"], "a")
    assert [len(store.load(name).nested(1)[0]) for name in "ab"] == [2, 1]
    store.save(parents["b"], "b")
    assert [len(store.load(name).nested(1)[0]) for name in "ab"] == [2, 2]
    assert store.verify() == []


@pytest.mark.parametrize("kind", [SQLiteStore, MemoryStore])
def test_subagents_shared_and_subagents_alike_are_not_mistaken_for_one_another(kind, path):
    store = kind(path) if kind is SQLiteStore else kind()

    def parent(*children: MessageGraph) -> MessageGraph:
        graph = MessageGraph()
        for number, child in enumerate(children):
            graph.append({"role": "tool", "tool_call_id": str(number), "content": ""}, contains=child)
        return graph

    def task() -> MessageGraph:
        return MessageGraph([user("task")])

    shared = task()
    store.save(parent(task(), task()), "two")
    store.save(parent(shared, shared), "one")
    for name in ("one", "two"):
        first, second = (child for _, child in store.load(name).links())
        assert (first is second) == (name == "one")
    for name, other in (("two", parent(shared, shared)), ("one", parent(task(), task()))):
        with pytest.raises(NameTaken):
            store.save(other, name)
    assert store.verify() == []
    store.close()


# ── files that are not ours, not there, or no longer open ────────────────────────────────────────────────────────


def foreign(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def test_a_newer_file_is_refused_and_left_as_it_is(path):
    with SQLiteStore(path) as store:
        store.save(MessageGraph([user("U")]), "a")
    foreign(path, "PRAGMA user_version = 2", "ALTER TABLE message ADD COLUMN better TEXT")
    before = files(path.parent)
    for create in (True, False):
        with pytest.raises(StoreTooNew, match=r"has format 2, this stemma reads up to 1; upgrade stemma"):
            open_store(path, create=create)
        assert files(path.parent) == before


FOREIGN = {
    "another program's database": ["CREATE TABLE t (x)", "INSERT INTO t VALUES (1)"],
    "one in WAL mode": ["PRAGMA journal_mode = WAL", "CREATE TABLE t (x)"],
    "one with a version": ["PRAGMA user_version = 7", "CREATE TABLE t (x)"],
    "one with an application id": ["PRAGMA application_id = 7"],
    "one with a table of our name": ["CREATE TABLE message (id, hash, body)"],
}


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_database_is_refused_and_left_as_it_is(path, statements, create):
    foreign(path, *statements)
    before = files(path.parent)
    with pytest.raises(StoreDamaged):
        open_store(path, create=create)
    assert files(path.parent) == before


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("content", [b"{}\n", b"SQLite format 3\x00" + b"\xff" * 5000, b"x" * 100, b"\x00" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path, content, create):
    path.write_bytes(content)
    before = files(path.parent)
    with pytest.raises(StoreDamaged):
        open_store(path, create=create)
    assert files(path.parent) == before


def test_a_directory_is_refused(path):
    path.mkdir()
    with pytest.raises(StoreError):
        open_store(path)


def test_a_path_through_a_file_is_refused(path):
    path.write_text("a file")
    with pytest.raises(StoreError):
        open_store(path / "store.db")


def test_a_store_that_is_not_there_is_not_made_when_that_is_not_wanted(tmp_path):
    with pytest.raises(StoreMissing, match=r"there is no store at .*/runs/store.db"):
        open_store(tmp_path / "runs" / "store.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_folders_on_the_way_to_a_new_store_are_made(tmp_path):
    with open_store(tmp_path / "runs" / "x" / "store.db") as store:
        store.save(MessageGraph([user("U")]), "a")
    with open_store(str(tmp_path / "runs" / "x" / "store.db"), create=False) as store:
        assert store.load("a") == [user("U")]


def test_a_closed_store_says_so(path):
    store, other = SQLiteStore(path), MemoryStore()
    graph = MessageGraph([user("U")])
    store.save(graph, "a")
    store.close()
    store.close()
    for use in (
        lambda: store.save(graph, "a"),
        lambda: store.save_soon(graph, "a"),
        lambda: store.save_run("r", {}),
        lambda: store.load("a"),
        store.graphs,
        store.runs,
        lambda: store.find("0"),
        store.verify,
        lambda: store.merge(other),
    ):
        with pytest.raises(StoreClosed, match="open it again"):
            use()


def test_a_store_closed_under_a_reader_says_so(path):
    store, refusals = SQLiteStore(path), []
    store.save(MessageGraph([user(str(i)) for i in range(500)]), "a")

    def read() -> None:
        try:
            while True:
                store.load("a")
        except BaseException as problem:  # noqa: BLE001  it is looked at below
            refusals.append(type(problem))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    store.close()
    for thread in threads:
        thread.join()
    assert refusals == [StoreClosed] * 4


def test_a_store_stays_where_it_was_opened(tmp_path, monkeypatch):
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with SQLiteStore("store.db") as store:
        monkeypatch.chdir(tmp_path / "there")
        store.save(MessageGraph([user("U")]), "a")
        assert store.load("a") == [user("U")]
    assert list((tmp_path / "there").iterdir()) == []


def test_closing_finishes_what_was_asked_for(path):
    store = SQLiteStore(path)
    done = [store.save_soon(MessageGraph([user(str(i))]), f"graph {i}") for i in range(300)]
    store.close()
    assert all(one.done() and one.exception() is None for one in done)
    with SQLiteStore(path) as store:
        assert len(store.graphs()) == 300


# ── saving soon, from many threads ───────────────────────────────────────────────────────────────────────────────


def test_many_threads_save_many_graphs(store):
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(20):
                graph = MessageGraph([user(f"{number} {i}")])
                first = store.save_soon(graph, f"{number} {i}", run=f"run {number}")
                graph.record(assistant("A"), CALL)
                store.save_soon(graph, f"{number} {i}").result()
                assert first.done()
                assert store.load(f"{number} {i}") == graph
        except BaseException as problem:  # noqa: BLE001  it is raised again below
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [(info.messages, info.calls) for info in store.graphs()] == [(2, 1)] * 320
    assert [one.graphs for one in store.runs()] == [20] * 16
    assert store.verify() == []


def test_save_soon_takes_the_graph_as_it_is_at_the_call(store, path):
    child = MessageGraph([user("task")])
    graph = MessageGraph([user("U"), {"role": "tool", "tool_call_id": "1", "content": ""}])
    graph.attach(1, child)
    metadata = {"list": [1]}
    with locked(path):  # the writer waits, so that everything below happens before anything is written
        done, expected = [], []
        for turn in range(5):
            done.append(store.save_soon(graph, f"turn {turn}", metadata=metadata))
            expected.append((fingerprint(graph), {"list": [1] * (turn + 1)}))
            metadata["list"].append(1)
            graph[0]["content"] = f"edited {turn}"
            graph.record(assistant(f"A{turn}"), CALL)
            child.append(user(f"more {turn}"))
            graph.attach(1, MessageGraph([user(f"another {turn}")]))
    for one in done:
        one.result()
    found = [(fingerprint(store.load(info.name)), info.metadata) for info in store.graphs()]
    assert found == expected
    store.save(graph, "turn 0")
    assert fingerprint(store.load("turn 0")) == fingerprint(graph)
    assert store.verify() == []


def commits(path: Path) -> int:
    """How many transactions the write-ahead log holds: frames that say how long the file is after them."""
    log = Path(f"{path}-wal").read_bytes()
    size = int.from_bytes(log[8:12], "big")
    return sum(log[at + 4 : at + 8] != bytes(4) for at in range(32, len(log), 24 + size))


def test_graphs_that_are_saved_at_the_same_moment_share_a_transaction(store, path):
    before = commits(path)
    with locked(path):
        done = [store.save_soon(MessageGraph([user(str(i))]), f"graph {i}") for i in range(200)]
    for one in done:
        one.result()
    assert commits(path) - before <= 3
    assert len(store.graphs()) == 200


def test_one_bad_save_in_a_group_takes_no_other_with_it(store, path):
    store.save(MessageGraph([user("theirs")]), "taken")
    with locked(path):
        store.save_soon(MessageGraph([user("x")]), "the one that waits")
        good = [store.save_soon(MessageGraph([user(str(i))]), f"good {i}") for i in range(50)]
        bad = [store.save_soon(MessageGraph([user("mine")]), "taken") for _ in range(2)]
        good += [store.save_soon(MessageGraph([user(str(i))]), f"good {i}") for i in range(50, 100)]
    for one in bad:
        assert isinstance(one.exception(), NameTaken)
    assert [one.result() for one in good] == [None] * 100
    assert sorted(info.name for info in store.graphs() if info.name.startswith("good")) == sorted(
        f"good {i}" for i in range(100)
    )
    assert store.load("taken") == [user("theirs")]
    assert store.verify() == []


def test_a_save_that_nobody_waits_for_any_more_is_made_and_holds_nobody_up(store, path):
    with locked(path):
        first, second = (store.save_soon(MessageGraph([user(name)]), name) for name in "ab")
        assert not first.cancel()

        async def give_up() -> None:
            await asyncio.wait_for(asyncio.wrap_future(second), 0.01)

        with pytest.raises(TimeoutError):
            asyncio.run(give_up())
    store.save(MessageGraph([user("c")]), "c")
    assert [info.name for info in store.graphs()] == ["a", "b", "c"]


def test_a_refused_save_leaves_the_handle_as_it_was(store, path):
    graph = MessageGraph([user("U")])
    store.save(graph, "a")
    store.save(MessageGraph([user("theirs")]), "taken")
    graph.append(user("V"))
    for _ in range(2):
        with pytest.raises(NameTaken):
            store.save(graph, "taken")
    before = count(path)
    store.save(graph, "a")
    assert added(before, count(path)) == {"message": 1, "line": 1}
    assert store.load("a") == graph


# ── readers beside a writer ──────────────────────────────────────────────────────────────────────────────────────

PAIRS = 120


def assert_whole_turns(graph: MessageGraph) -> int:
    """Whole pairs of a question and its recorded answer; how many."""
    pairs = len(graph) // 2
    assert [m["role"] for m in graph.messages()] == ["user", "assistant"] * pairs
    assert len(graph.calls()) == pairs
    return pairs


def write_turns(store: SQLiteStore) -> None:
    graph = MessageGraph()
    for turn in range(PAIRS):
        graph.append(user(f"question {turn}"))
        graph.record(assistant(f"answer {turn}"), Call(model="m", params={"turn": turn}))
        store.save(graph, "chat")


READER = """
    import sys
    from stemma.store import SQLiteStore
    last = 0
    with SQLiteStore(sys.argv[1], create=False) as store:
        print("ready", flush=True)
        while last < int(sys.argv[2]):
            if not store.graphs():
                continue
            graph = store.load("chat")
            pairs = len(graph) // 2
            assert [m["role"] for m in graph.messages()] == ["user", "assistant"] * pairs
            assert len(graph.calls()) == pairs >= last
            last = pairs
"""


def test_a_reader_never_sees_half_a_turn(store, path):
    """Not in another process, and not in another thread."""
    process = start(python(READER, path, PAIRS))
    process.stdout.readline()
    seen, failures = [0], []

    def read() -> None:
        try:
            while seen[-1] < PAIRS:
                if store.graphs():
                    seen.append(assert_whole_turns(store.load("chat")))
        except BaseException as problem:  # noqa: BLE001  it is raised again below
            failures.append(problem)

    thread = threading.Thread(target=read)
    thread.start()
    write_turns(store)
    thread.join(60)
    finish(process)
    assert failures == []
    assert seen == sorted(seen)
    assert len(set(seen)) > 2, "the reader was to read while the writer wrote"


# ── a disk that refuses ──────────────────────────────────────────────────────────────────────────────────────────

FULL_FILE = """
    import resource, sys
    from stemma import MessageGraph
    from stemma.errors import NotWritten
    from stemma.store import SQLiteStore
    with SQLiteStore(sys.argv[1]) as store:
        graph = MessageGraph([{"role": "user", "content": "U"}])
        store.save(graph, "a")
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
        refused = kept = 0
        for i in range(40):
            graph.append({"role": "user", "content": str(i) * 30_000})
            try:
                store.save(graph, "a")
                kept = len(graph)
            except NotWritten as problem:
                refused += 1
                assert sys.argv[1] in str(problem) and "nothing of this save was recorded" in str(problem), problem
        assert refused, "the limit was never reached"
        assert len(store.load("a")) == kept < len(graph)
        assert store.verify() == []
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.save(graph, "a")
        assert len(store.load("a")) == 41
        assert store.verify() == []
"""


def test_a_file_that_may_not_grow_refuses_a_save_and_takes_it_when_it_may_again(path):
    run(FULL_FILE, path)
    with SQLiteStore(path, create=False) as store:
        assert len(store.load("a")) == 41
        assert store.verify() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a mebibyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"a small disk needs root and mount: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_refuses_a_save_and_takes_it_when_there_is_room(small_disk):
    with SQLiteStore(small_disk / "store.db") as store:
        graph, kept = MessageGraph([user("U")]), 0
        for i in range(100):
            graph.append(user(str(i) * 10_000))
            try:
                store.save(graph, "a")
            except NotWritten as problem:
                assert "disk is full" in str(problem) or "No space left" in str(problem)  # noqa: PT017
                break
            kept = len(graph)
        else:
            pytest.fail("the disk was never full")
        with pytest.raises(NotWritten):
            store.save(graph, "a")
        with pytest.raises(NotWritten):
            store.save(MessageGraph([user("x" * 100_000)]), "b")
        assert len(store.load("a")) == kept
        assert store.verify() == []
        subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
        store.save(graph, "a")
        assert store.load("a") == graph
        assert store.verify() == []


def test_a_new_store_on_a_full_disk_is_refused_and_made_when_there_is_room(small_disk):
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1 << 20))
    with pytest.raises(StoreError):
        SQLiteStore(small_disk / "store.db")
    filler.unlink()
    with SQLiteStore(small_disk / "store.db") as store:
        store.save(MessageGraph([user("U")]), "a")
        assert store.verify() == []


NO_LEAVE = """
    import os, sys
    from pathlib import Path
    from stemma import MessageGraph
    from stemma.errors import NotWritten, StoreError
    from stemma.store import SQLiteStore
    path = Path(sys.argv[1])
    graph = MessageGraph([{"role": "user", "content": "U"}])
    store = SQLiteStore(path)
    store.save(graph, "a")
    os.chmod(path.parent, 0o555)
    for file in path.parent.iterdir():
        os.chmod(file, 0o444)
    os.seteuid(65534 if os.geteuid() == 0 else os.geteuid())
    graph.append({"role": "user", "content": "V"})
    for _ in range(2):
        try:
            store.save(graph, "a")
            raise SystemExit("it was written")
        except NotWritten as problem:
            assert str(path) in str(problem), problem
    assert len(store.load("a")) == 1 and store.verify() == []
    try:
        SQLiteStore(path.parent / "sub" / "store.db")
        raise SystemExit("it was made")
    except StoreError as problem:
        assert str(path.parent) in str(problem), problem
    os.seteuid(os.getuid())
    os.chmod(path.parent, 0o755)
    for file in path.parent.iterdir():
        os.chmod(file, 0o644)
    store.save(graph, "a")
    assert len(store.load("a")) == 2 and store.verify() == []
    store.close()
"""


def test_a_folder_that_may_not_be_written_refuses_a_save_and_takes_it_when_it_may(path):
    if os.geteuid() == 0:
        for folder in path.parents[:-2]:
            folder.chmod(folder.stat().st_mode | 0o055)  # the user nobody must be able to come here
    run(NO_LEAVE, path)


# ── the schema ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_schema_says_what_every_table_and_column_means(store, path):
    schema = Path(stemma.store.__file__).with_name("schema.sql").read_text(encoding="utf-8")
    explained: dict[str, set[str]] = {}
    for table, about, body in re.findall(r"CREATE TABLE (\w+) \( *-- (.+?)\n(.*?)\n\)[^;]*;", schema, re.DOTALL):
        assert len(about.split()) >= 3, f"{table}: {about}"
        columns = re.findall(r"^ +([a-z_]+) +[A-Z].*?-- (\S.*)$", body, re.MULTILINE)
        assert all(meaning.strip() for _, meaning in columns)
        explained[table] = {column for column, _ in columns}
    there = {
        table: {row[1] for row in ask(path, f"PRAGMA table_info({table})")}
        for (table,) in ask(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert explained == there
    assert set(there) == set(TABLES)


def test_the_file_is_written_ahead_and_synced_in_full(store, path):
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]
    with closing(store._connect()) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_a_head_edited_while_the_end_grows_costs_two_small_rows_a_turn(store, path):
    graph = MessageGraph([{"role": "system", "content": "it is 0 o'clock"}])
    for turn in range(60):
        graph[0]["content"] = f"it is {turn} o'clock"
        graph.append(user(f"Q{turn}"))
        graph.record(assistant(f"A{turn}"), CALL)
        store.save(graph, "clock")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT max(length(added)) FROM line WHERE depth > 0").fetchone()[0] < 20
        assert db.execute("SELECT count(*) FROM line").fetchone()[0] <= 2 * 60
    assert store.load("clock").lines() == graph.lines()
    assert store.verify() == []


def test_threads_that_read_and_end_leave_no_connection_behind(path):
    descriptors = Path("/proc/self/fd")

    def open_now():
        return sum(os.path.realpath(one).startswith(str(path)) for one in descriptors.iterdir())

    with SQLiteStore(path) as store:
        store.save(MessageGraph([user("Q")]), "a")
        for _ in range(40):
            reader = threading.Thread(target=store.load, args=("a",))
            reader.start()
            reader.join()
        assert open_now() < 12
    assert open_now() == 0
