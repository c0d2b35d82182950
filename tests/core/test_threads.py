"""A graph is changed by one thread; another is told so at once, and no reply is lost or tied to the wrong context."""

from collections.abc import Callable
from threading import Barrier, Event, Thread

import pytest

from stemma import Call, MessageGraph
from stemma.errors import OtherThread
from stemma.store import MemoryStore

CALL = Call(model="m")


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def while_another_thread_changes(graph: MessageGraph, act: Callable[[], None]) -> None:
    """Run `act` here while a thread that has changed the graph is still alive."""
    changed, done = Event(), Event()

    def other() -> None:
        graph.append(user("theirs"))
        changed.set()
        done.wait(60)

    thread = Thread(target=other)
    thread.start()
    try:
        assert changed.wait(60)
        act()
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.append(user("x")),
        lambda graph: graph.record(reply("x"), CALL),
        lambda graph: graph[0].update(content="x"),
        lambda graph: graph.pop(),
        lambda graph: graph.clear(),
        lambda graph: graph.edit().__enter__(),
        lambda graph: MemoryStore().save(graph, "g"),
        lambda graph: graph.hand_over(),
    ],
)
def test_a_second_thread_gets_an_error_and_changes_nothing(change):
    graph = MessageGraph([user("q")])

    def act() -> None:
        with pytest.raises(OtherThread, match="fork"):
            change(graph)

    while_another_thread_changes(graph, act)
    assert graph.messages() == [user("q"), user("theirs")]
    assert graph.calls() == []


def test_a_thread_that_has_ended_or_handed_over_leaves_the_graph_to_the_next():
    graph = MessageGraph([user("q")])
    thread = Thread(target=lambda: graph.record(reply("a"), CALL))
    thread.start()
    thread.join()
    graph.append(user("next"))
    graph.hand_over()
    thread = Thread(target=lambda: graph.record(reply("b"), CALL))
    thread.start()
    thread.join()
    assert [call.index for call in graph.calls()] == [1, 3]


def test_threads_with_forks_of_their_own_each_keep_their_replies():
    graph = MessageGraph([user("q")])
    forks = [graph.fork() for _ in range(8)]
    start = Barrier(8)

    def work(number: int) -> None:
        start.wait(60)
        for turn in range(50):
            forks[number].append(user(f"{number}/{turn}"))
            forks[number].record(reply(f"{number}/{turn}"), CALL)

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, fork in enumerate(forks):
        (row,) = fork.rows()
        assert [row.messages[at]["content"] for at in row.trained] == [f"{number}/{turn}" for turn in range(50)]
        assert [row.messages[at - 1]["content"] for at in row.trained] == [f"{number}/{turn}" for turn in range(50)]


def test_a_thread_that_has_ended_does_not_own_a_graph_though_another_has_its_number():
    for _ in range(20):
        graph = MessageGraph([user("q")])
        ended = Thread(target=lambda graph=graph: graph.record(reply("a"), CALL))
        ended.start()
        ended.join()
        done = Event()
        later = Thread(target=done.wait, args=(60,))  # most systems give it the number of the one that ended
        later.start()
        try:
            graph.append(user("next"))
        finally:
            done.set()
            later.join()
