import asyncio
import os
from pathlib import Path

import pytest

from stemma import MessageGraph
from stemma.batch.record import Record
from stemma.batch.rewards import BadReward, Scored, load_reward, score

SCORED = Scored(
    graph=MessageGraph([{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]),
    record=Record(key="k", status="completed", metadata={"right": "4"}),
)


def scored(function):
    return asyncio.run(score(function, SCORED))


def test_a_number_a_truth_or_an_object_is_a_reward():
    assert scored(lambda s: 3).reward == 3.0
    assert scored(lambda s: s.answer == s.metadata["right"]).reward == 1.0
    found = scored(lambda s: {"reward": 0.5, "style": "short"})
    assert (found.reward, found.scores, found.reward_failure) == (0.5, {"style": "short"}, None)


def test_an_async_function_is_awaited():
    async def slow(s):
        await asyncio.sleep(0)
        return len(s.graph)

    assert scored(slow).reward == 2.0


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda s: 1 / 0, "ZeroDivisionError"),
        (lambda s: "good", "BadReward"),
        (lambda s: None, "BadReward"),
        (lambda s: float("nan"), "BadReward"),
        (lambda s: {"style": 1}, "BadReward"),
        (lambda s: {"reward": 1, "odd": object()}, "BadMessage"),
    ],
)
def test_what_is_no_reward_leaves_the_conversation_unscored_with_the_reason(function, kind):
    found = scored(function)
    assert (found.reward, found.reward_failure.kind) == (None, kind)
    assert found.status == "completed"


def raising(problem):
    def function(s):
        raise problem

    async def function_async(s):
        raise problem

    return function, function_async


@pytest.mark.parametrize("problem", [StopIteration("over"), asyncio.CancelledError("gone"), SystemExit(3)])
def test_a_function_that_raises_what_would_end_more_than_its_call_leaves_the_conversation_unscored(problem):
    for function in raising(problem):
        found = asyncio.run(asyncio.wait_for(score(function, SCORED), 10))
        assert (found.reward, found.status) == (None, "completed")
        assert type(problem).__name__ in f"{found.reward_failure.kind} {found.reward_failure.text}"


def test_a_function_that_changes_the_working_folder_leaves_the_conversation_unscored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def changes(s):
        os.chdir("/")
        return 1.0

    async def changes_async(s):
        return changes(s)

    for function in (changes, changes_async):
        found = scored(function)
        assert (found.reward, found.reward_failure.kind) == (None, "FolderChanged")
        assert os.getcwd() == str(tmp_path)


def test_an_answer_is_there_only_when_the_conversation_came_to_one():
    stopped = Scored(graph=SCORED.graph, record=Record(key="k", status="stopped"))
    assert (SCORED.answer, SCORED.completed) == ("4", True)
    assert (stopped.answer, stopped.completed) == (None, False)


def test_a_function_is_found_in_the_folder_by_its_name(tmp_path: Path, monkeypatch):
    import sys

    (tmp_path / "my_scoring_module.py").write_text("def exact(s): return 1\nnumber = 3\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_reward("my_scoring_module:exact", tmp_path)(SCORED) == 1
    assert load_reward("my_scoring_module.py:exact", tmp_path)(SCORED) == 1
    for address, complaint in [
        ("my_scoring_module:none", "cannot find"),
        ("not_there_at_all:exact", "cannot find"),
        ("my_scoring_module:number", "is no function"),
        ("exact", "module:function"),
    ]:
        with pytest.raises(BadReward, match=complaint):
            load_reward(address, tmp_path)
