"""The judge itself: it finds nothing wrong with rows that are right, and every single thing that is done to them."""

import copy
import json
from pathlib import Path

import pytest

from truth.conversations import Reply, World, drawn, every_shape
from truth.judge import duty, label_of, remains, spans, told
from truth.paths import judge_text
from truth.readers import Export, _messages
from truth.shapes import Spoken

READ = _messages(lambda message: message["train"])


def message_of(spoken: Spoken, trained: bool) -> dict:
    """A message as a perfect exporter would write it for axolotl."""
    calls = [{"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in spoken.calls]
    content = spoken.content()
    said = {
        "role": spoken.speaker,
        "content": "\n".join(spoken.texts) if content is None else content,
        "train": trained,
    }
    said |= {"reasoning_content": "\n\n".join(spoken.reasoning)} if spoken.reasoning else {}
    return said | ({"tool_calls": calls} if calls else {})


def record_of(reply: Reply, world: World) -> dict:
    messages = [message_of(spoken, False) for spoken in reply.context] + [message_of(reply.spoken, True)]
    finish = {"stop": "stop"}.get(reply.facts)
    return {
        "messages": messages,
        "tools": json.dumps(reply.tools, ensure_ascii=False),
        "id": reply.conversation,
        "model": "m",
        "finish_reason": finish,
        "on_policy": reply.facts not in ("ephemeral", "prefill"),
        "off_policy": "ephemeral" if reply.facts in ("ephemeral", "prefill") else "",
        "metadata": dict(world.metadata[reply.conversation]),
    }


def perfect(world: World) -> tuple[list[dict], list[dict], dict]:
    """A row for each reply that must be trained, and a line of the receipts for each other."""
    rows, receipts = [], []
    for reply in world.replies:
        if duty(reply, "axolotl-turns") == "train":
            rows.append(record_of(reply, world))
        else:
            receipts.append({"type": "excluded", "made": reply.made, "rollout": reply.conversation, "reason": "why"})
    report = {"written": len(rows), "trained_messages": len(rows), "replies": len(world.replies)}
    return rows, receipts, report | {"left_out": {"why": {"replies": len(receipts)}}}


def judged(world: World, rows: list[dict], receipts: list[dict], report: dict) -> list:
    read = [READ(number, record) for number, record in enumerate(rows)]
    return judge_text(world, Export("axolotl-turns", Path(), read, report, receipts), "perfect")


@pytest.fixture(scope="module")
def world() -> World:
    made = World()
    for script in [*every_shape(), *drawn(60, start=2)]:
        made.build(script)
    made.metadata.update({talk.name: {"reward": 0.5, "split": "x"} for talk in made.talks})
    return made


def test_a_perfect_export_has_no_faults(world):
    rows, receipts, report = perfect(world)
    faults = judged(world, rows, receipts, report)
    assert not faults, told(faults)
    assert len(rows) > len(world.replies) / 3


CHANGES = {
    "a plain reply is not trained": lambda rows, receipts: rows.pop(5),
    "a reply is trained more than once": lambda rows, receipts: rows.append(copy.deepcopy(rows[5])),
    "a reply is neither trained nor listed as excluded": lambda rows, receipts: receipts.pop(5),
    "sampled text is lost or changed": lambda rows, receipts: _last(rows).update(content=_last(rows)["content"][:-1]),
    "text is trained that nobody sampled": lambda rows, receipts: _last(rows).update(
        content=_last(rows)["content"] + "[image]"
    ),
    "content is changed": lambda rows, receipts: _last(rows).update(content=_last(rows)["content"] + "\n"),
    "context text is trained": lambda rows, receipts: rows[5]["messages"][1].update(train=True),
    "missing from the context of a trained reply": lambda rows, receipts: rows[5]["messages"].pop(1),
    "extra in the context of a trained reply": lambda rows, receipts: rows[5]["messages"].insert(
        1, rows[30]["messages"][1]
    ),
    "another order in the context of a trained reply": lambda rows, receipts: rows[5]["messages"].insert(
        0, rows[5]["messages"].pop(1)
    ),
    "text of the context is changed": lambda rows, receipts: rows[5]["messages"][1].update(
        content=rows[5]["messages"][1]["content"].split()[0]
    ),
    "other tools than were offered": lambda rows, receipts: rows[5].update(tools="[]"),
    "calls are lost or made up": lambda rows, receipts: _calling(rows).pop("tool_calls"),
    "arguments are changed": lambda rows, receipts: _calling(rows)["tool_calls"][0]["function"].update(arguments="{}"),
    "column `on_policy` is missing or wrong": lambda rows, receipts: rows[5].update(on_policy=False, off_policy="x"),
    "column `metadata.reward` is missing or wrong": lambda rows, receipts: rows[5]["metadata"].update(reward=0.75),
    "an excluded reply that nobody sampled": lambda rows, receipts: receipts[5].update(made="00"),
    "an excluded reply without a reason": lambda rows, receipts: receipts[5].update(reason=""),
    "a control marker is written": lambda rows, receipts: rows[5]["messages"][0].update(name="<|im_end|>"),
    "report.json: `written` does not add up": lambda rows, receipts: rows.append(copy.deepcopy(rows[5])),
}


def _last(rows):
    """A reply with a text."""
    return next(row["messages"][-1] for row in rows[5:] if row["messages"][-1]["content"])


def _calling(rows):
    """A reply of a text and a call."""
    replies = (row["messages"][-1] for row in rows)
    return next(reply for reply in replies if "tool_calls" in reply and reply["content"])


@pytest.mark.parametrize("problem", CHANGES)
def test_every_single_change_is_found(world, problem):
    rows, receipts, report = perfect(world)
    CHANGES[problem](rows, receipts)
    assert problem in {fault.problem for fault in judged(world, rows, receipts, report)}


def test_pieces_are_taken_out_in_their_order():
    assert remains("<think>\na\n</think>\nb", ("a", "b")) == ("<think>\n\0\n</think>\n\0", None)
    assert remains("b a", ("a", "b")) == ("b \0", "b")


def test_runs_of_trained_tokens():
    assert spans([False, True, True, False, True]) == [(1, 3), (4, 5)]
    assert spans([False]) == []


def test_a_reply_is_named_by_the_first_mark_that_was_given_out():
    assert label_of(["S10q", "S9q", "C1q"]) == "S9q"
