import json

import pytest

from batches import adder
from stemma import Call, MessageGraph
from stemma.batch.outputs import (
    Parts,
    Shape,
    columns_as_names,
    columns_from_names,
    entry_line,
    failure_lines,
    join_parts,
    kept_shape,
    part_name,
    shape_of,
)
from stemma.batch.policies import Policies
from stemma.batch.record import Failure, Record, as_metadata
from stemma.formats.entries import Columns, ToolUse
from stemma.models.protocol import Request
from stemma.store.memory import MemoryStore

SHAPE = Shape(columns=Columns({"level": int, "stemma_name": str}, rest=True), batch_size=2)


def conversation(prompt="one"):
    graph = MessageGraph([{"role": "user", "content": prompt}])
    graph.record({"role": "assistant", **adder(Request(messages=graph.messages()))}, Call(model="m", tools=[]))
    graph.append({"role": "tool", "tool_call_id": "call_1", "content": "4"})
    graph.record({"role": "assistant", "content": "It is 4.", "reasoning": "r"}, Call(model="m", tools=[]))
    return graph


def record(index=0, **more):
    known = {"offered": ["add"], "tools": {"add": ToolUse(1, 1, 0)}, "status": "completed"}
    known |= {"api_calls": 2, "with_reasoning": 2, "metadata": {"level": 3}}
    return Record(key=f"k{index}", prompt_index=index, **{**known, **more})


def test_an_entry_says_what_happened():
    entry = json.loads(entry_line(conversation(), record(), SHAPE))
    assert (entry["completed"], entry["partial"], entry["api_calls"]) == (True, False, 2)
    assert entry["metadata"]["level"] == 3
    assert sum(use["success"] for use in entry["tool_stats"].values()) == 1
    assert [turn["from"] for turn in entry["conversations"]] == ["system", "human", "gpt", "tool", "gpt"]


def test_a_limit_makes_an_entry_partial():
    entry = json.loads(entry_line(conversation(), record(status="stopped"), SHAPE))
    assert (entry["completed"], entry["partial"]) == (False, True)


def test_a_failure_is_told_with_its_class_and_text():
    line = json.loads(failure_lines(record(4, status="failed", failure=Failure("Refused", "no"), attempts=2), "Why?"))
    assert (line["error"], line["text"], line["prompt"], line["attempts"]) == ("Refused", "no", "Why?", 2)


def test_a_part_holds_its_ended_tasks_in_the_order_of_the_dataset_from_memory_or_store(tmp_path):
    store = MemoryStore()
    members = [record(1), record(0), record(1, status="failed", sample=1), record(0, with_reasoning=0, sample=2)]
    parts = Parts(tmp_path, store, SHAPE)
    parts.add(members[0], entry_line(conversation("kept in memory"), members[0], SHAPE))
    store.save(conversation("kept in the store"), members[1].name, metadata=as_metadata(members[1]))
    parts.write(1, members)
    lines = (tmp_path / part_name(1)).read_text().splitlines()
    said = [json.loads(line)["conversations"][1]["value"] for line in lines]
    assert said == ["kept in the store", "kept in memory"]


def test_rows_are_put_into_parts_by_their_place_in_the_dataset(tmp_path):
    parts = Parts(tmp_path, MemoryStore(), SHAPE)
    assert [parts.part_of(record(index)) for index in range(5)] == [1, 1, 2, 2, 3]


def test_joining_keeps_the_order_of_the_numbers_and_removes_what_is_stale(tmp_path):
    for part in (1, 2, 10, 11):
        (tmp_path / part_name(part)).write_text(f"{part}\n")
    join_parts(tmp_path, [1, 2, 10])
    assert (tmp_path / "trajectories.jsonl").read_text() == "1\n2\n10\n"
    assert not (tmp_path / part_name(11)).exists()


@pytest.mark.parametrize("rewarded", [False, True])
def test_the_shape_of_a_run_comes_back_from_its_metadata(rewarded):
    columns = Columns({"a": str, "b": int, "c": float, "d": bool}, rest=True)
    shape = Shape(columns=columns, known_tools=("x", "y"), batch_size=7, policies=Policies(rewarded=rewarded))
    kept = json.loads(json.dumps({**kept_shape(shape), "about": {"batch_size": 7}}))
    assert shape_of(kept) == shape
    assert columns_from_names(columns_as_names(columns)) == columns
