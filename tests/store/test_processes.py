"""Many processes on one file: writers take turns, readers never wait, and nothing is lost."""

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from stemma import MessageGraph
from stemma.errors import StoreBusy
from stemma.store import SQLiteStore
from store.child import finish, python, run, start
from store.sample import contents, fill, user

WRITER = """
    import sys
    from stemma import Call, MessageGraph
    from stemma.store import SQLiteStore
    path, who, graphs, turns = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print("ready", flush=True)
    sys.stdin.readline()
    with SQLiteStore(path) as store:
        for number in range(graphs):
            graph = MessageGraph()
            for turn in range(turns):
                graph.append({"role": "user", "content": f"{turn}"})
                graph.record({"role": "assistant", "content": f"{who} {turn}"}, Call(model="m"))
                store.save(graph, f"{who} {number}", run=who)
        print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def write_at_once(path: Path, writers: int, graphs: int, turns: int) -> None:
    """Let several processes write, starting at the same moment, and see that each finds all of its work done."""
    processes = [start(python(WRITER, path, who, graphs, turns), stdin=PIPE) for who in range(writers)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert finish(process) == f"{graphs - 1}\n"
    with SQLiteStore(path, create=False) as store:
        assert store.verify() == []
        expected = [(f"{who} {n}", str(who), 2 * turns, turns) for who in range(writers) for n in range(graphs)]
        assert [(info.name, info.run, info.messages, info.calls) for info in store.graphs()] == sorted(expected)
        for who in range(writers):
            last = store.load(f"{who} {graphs - 1}")
            assert [m["content"] for m in last.messages()[1::2]] == [f"{who} {turn}" for turn in range(turns)]


def test_two_processes_write_at_once_and_lose_nothing(path):
    write_at_once(path, writers=2, graphs=4, turns=25)


def test_eight_processes_write_at_once_and_lose_nothing(path):
    write_at_once(path, writers=8, graphs=2, turns=25)


@pytest.mark.slow
def test_many_processes_write_long(path):
    write_at_once(path, writers=16, graphs=10, turns=40)


MAKER = """
    import sys
    from stemma import MessageGraph
    from stemma.store import SQLiteStore
    print("ready", flush=True)
    for line in sys.stdin:
        with SQLiteStore(line.strip()) as store:
            store.save(MessageGraph([{"role": "user", "content": "U"}]), sys.argv[1])
        print("made", flush=True)
"""


def test_processes_that_make_the_same_store_at_once_find_one_store(tmp_path):
    makers = [start(python(MAKER, number), stdin=PIPE) for number in range(6)]
    for maker in makers:
        assert maker.stdout.readline() == "ready\n"
    for attempt in range(30):
        for maker in makers:
            maker.stdin.write(f"{tmp_path / str(attempt)}.db\n")
            maker.stdin.flush()
        assert [maker.stdout.readline() for maker in makers] == ["made\n"] * 6
    for maker in makers:
        finish(maker)
    for path in tmp_path.glob("*.db"):
        with SQLiteStore(path, create=False) as store:
            assert [info.name for info in store.graphs()] == list("012345")
            assert store.verify() == []


def test_of_two_processes_that_save_under_one_name_one_is_told(path):
    script = """
        import sys
        from stemma import MessageGraph
        from stemma.errors import NameTaken
        from stemma.store import SQLiteStore
        with SQLiteStore(sys.argv[1]) as store:
            try:
                store.save(MessageGraph([{"role": "user", "content": sys.argv[2]}]), "one name")
                print("saved", sys.argv[2])
            except NameTaken:
                print("taken")
    """
    told = sorted(finish(process).strip() for process in [start(python(script, path, who)) for who in range(4)])
    assert told[1:] == ["taken"] * 3
    with SQLiteStore(path) as store:
        assert told[0] == f"saved {store.load('one name')[0]['content']}"
        assert store.verify() == []


HOLDER = """
    import os, sys, time
    from stemma.store import SQLiteStore
    store = SQLiteStore(sys.argv[1])
    with store._writer.turn():
        print(os.getpid(), flush=True)
        time.sleep(60)
"""


def test_a_writer_that_waited_too_long_is_told_who_holds_the_store(path):
    holder = start(python(HOLDER, path))
    try:
        pid = int(holder.stdout.readline())
        with SQLiteStore(path, wait=0.3) as store:
            began = time.monotonic()
            jobs = [store.save_soon(MessageGraph([user(str(i))]), f"graph {i}") for i in range(40)]
            for job in jobs:
                with pytest.raises(StoreBusy, match=rf"is being written by process {pid} \(.*\), still after 0.3 s"):
                    job.result()
            assert time.monotonic() - began < 6, "those that wait together wait once"
            assert store.graphs() == []
            holder.kill()
            holder.wait()
            store.save(MessageGraph([user("U")]), "a")  # who is killed holds nothing any more
            assert store.verify() == []
    finally:
        holder.kill()
        holder.communicate()


def test_a_writer_that_is_no_stemma_is_waited_for_no_longer(path):
    with SQLiteStore(path, wait=0.3) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreBusy, match=r"is being written by another process, still after 0.3 s"):
            store.save(MessageGraph([user("U")]), "a")
        assert time.monotonic() - began < 5
        other.execute("ROLLBACK")
        store.save(MessageGraph([user("U")]), "a")


def test_a_store_that_came_with_a_fork_says_so_instead_of_waiting_for_a_thread_that_is_not_there(path):
    script = """
        import os, sys, warnings
        from stemma import MessageGraph
        from stemma.errors import StoreClosed
        from stemma.store import SQLiteStore
        warnings.simplefilter("ignore")
        store, graph = SQLiteStore(sys.argv[1]), MessageGraph([{"role": "user", "content": "U"}])
        store.save(graph, "a")
        child = os.fork()
        if not child:
            refused = 0
            for use in (lambda: store.save(graph, "b"), lambda: store.load("a"), lambda: store.save_run("r", {})):
                try:
                    use()
                except StoreClosed as problem:
                    refused += str(os.getppid()) in str(problem)
            store.close()
            with SQLiteStore(sys.argv[1]) as own:
                own.save(graph, "theirs")
            os._exit(0 if refused == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0
        store.save(graph, "b")
        assert [info.name for info in store.graphs()] == ["a", "b", "theirs"]
        assert store.verify() == []
        store.close()
    """
    run(script, path, within=20)


def test_readers_do_not_wait_for_writers(path):
    with SQLiteStore(path) as store:
        fill(store)
        expected = contents(store)
    holder = start(python(HOLDER, path))
    try:
        holder.stdout.readline()
        began = time.monotonic()
        with SQLiteStore(path, create=False) as store:
            assert contents(store) == expected
            assert store.verify() == []
        assert time.monotonic() - began < 5
    finally:
        holder.kill()
        holder.communicate()


READER = """
    import sys
    from stemma.store import SQLiteStore
    turns, seen = int(sys.argv[2]), {}
    with SQLiteStore(sys.argv[1], create=False) as store:
        print("ready", flush=True)
        while seen.get("w 1", 0) < turns:
            for info in store.graphs():
                graph = store.load(info.name)
                assert len(graph) == 2 * len(graph.calls()), "half a turn"
                assert len(graph.calls()) >= max(info.calls, seen.get(info.name, 0)), "back in time"
                seen[info.name] = len(graph.calls())
        assert store.verify() == []
"""


def test_many_readers_beside_one_writer_see_whole_turns_in_order(path):
    SQLiteStore(path).close()
    readers = [start(python(READER, path, 60)) for _ in range(4)]
    for reader in readers:
        assert reader.stdout.readline() == "ready\n"
    finish(start(python(WRITER, path, "w", 2, 60), stdin=DEVNULL))
    for reader in readers:
        finish(reader)


def test_a_closed_store_leaves_one_file_and_its_lock(path):
    """So that a store can be copied as a file."""
    finish(start(python(WRITER, path, "w", 1, 3), stdin=DEVNULL))
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db", "store.db-lock"]
    assert re.fullmatch(rb"process \d+ \(.*\) *", Path(f"{path}-lock").read_bytes())
