from stemma.agent.facts import Asking, Replied, ToolStarted
from stemma.batch.progress import Doing, Elsewhere, Progress, Spending
from stemma.batch.record import Failure, Record
from stemma.models.errors import RateLimited


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_what_each_task_does_is_known_and_the_oldest_come_first():
    clock = Clock()
    progress = Progress(clock)
    for name in ("old", "new"):
        progress.started(name, f"text of {name}")
        clock.now += 5
    progress.fact("old", ToolStarted("c", "terminal", "{}"))
    progress.fact("new", Asking(3))
    assert [(name, doing.what) for name, doing in progress.slowest(5)] == [
        ("old", "runs terminal"),
        ("new", "asks the model, turn 3"),
    ]
    progress.waits("new", RateLimited("429"), 2.0)
    assert progress.doing["new"].what == "RateLimited, tries again in 2 s"
    progress.fact("gone", Asking(1))
    assert "gone" not in progress.doing


def test_rate_and_what_is_left_follow_the_tasks_that_ended_here():
    clock = Clock()
    progress = Progress(clock)
    progress.to_do = 10
    assert progress.left is None
    clock.now = 4.0
    before = Record(key="k")
    progress.finished(Record(key="k", status="completed"), before)
    progress.finished(Record(key="k", status="failed", failure=Failure("Refused", "no")), before)
    assert (progress.done, progress.rate, progress.left) == (2, 0.5, 16.0)
    assert progress.errors == {"Refused": 1}


def test_a_task_that_goes_on_is_counted_for_what_it_used_anew():
    spent = Spending()
    before = Record(key="k", usage={"total_tokens": 70}, cost=0.5)
    spent.add(before)
    spent.add(Record(key="k", usage={"total_tokens": 100}, cost=0.75), less=before)
    assert (spent.tokens, spent.cost) == (100, 0.75)
    spent.add(Record(key="free"))
    assert (spent.tokens, spent.cost) == (100, 0.75)


def test_what_helpers_do_is_counted_and_shown_like_our_own():
    clock = Clock()
    progress = Progress(clock)
    progress.limit = 4
    progress.started("ours", "text")
    progress.elsewhere[1] = Elsewhere(
        2, 3, [("old", Doing("o", "asks", -9.0, 0.0)), ("new", Doing("n", "asks", 5.0, 5.0))]
    )
    assert (progress.running, progress.at_once) == (3, 7)
    assert [name for name, _ in progress.slowest(5)] == ["old", "ours", "new"]
    del progress.elsewhere[1]
    assert (progress.running, progress.at_once) == (1, 4)


def test_questions_that_were_answered_are_counted():
    progress = Progress(Clock())
    for fact in (Asking(1), Replied(None), Asking(2)):
        progress.fact("k", fact)
    assert progress.answered == 1
