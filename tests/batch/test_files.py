import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import adder, adding_agent, bytes_of, lines_of
from stemma import open_store
from stemma.batch.batch import run_batch
from stemma.batch.files import RunFiles
from stemma.batch.outputs import shape_of
from stemma.batch.plan import Selection
from stemma.formats.entries import entry_metadata
from stemma.models.errors import Refused
from stemma.models.scripted import ScriptedModel


def run(rows, folder, model=None, **more):
    return list(run_batch(rows, agent=adding_agent(model), name="r", folder=folder, batch_size=2, **more))


def rebuilt(folder):
    """The files made again from the store alone, in an empty folder."""
    empty = folder / "empty"
    empty.mkdir()
    with open_store(folder / "r" / "stemma.db", create=False) as store:
        metadata = store.runs()[0].metadata
        RunFiles(empty, "r", store, shape_of(metadata), metadata["about"]).finish()
    return bytes_of(empty)


def indices(path):
    return [line["prompt_index"] for line in lines_of(path)]


def test_a_part_appears_as_soon_as_the_last_of_its_tasks_has_ended(tmp_path):
    async def waits_at_the_third(request):
        await asyncio.sleep(0.5 if "prompt 2" in str(request.messages) else 0)
        return adder(request)

    rows = [f"prompt {i}" for i in range(6)]
    agent = adding_agent(ScriptedModel(waits_at_the_third))
    batch = run_batch(rows, agent=agent, name="r", folder=tmp_path, batch_size=2, concurrency=6)
    seen = [sorted(path.name[6:9] for path in (tmp_path / "r").glob("batch_*")) for _ in batch]
    assert ["001", "003"] in seen
    assert [indices(tmp_path / "r" / f"batch_00{n}_output.jsonl") for n in (1, 2, 3)] == [[0, 1], [2, 3], [4, 5]]


def test_a_rebuilt_folder_is_the_same_byte_for_byte(tmp_path):
    def sometimes(request):
        return Refused("no", status=400) if "bad" in str(request.messages[0]) else adder(request)

    run(["a", "bad", "cc", {"prompt": "d", "level": 1}, "a"], tmp_path, ScriptedModel(sometimes), samples=2)
    assert len(lines_of(tmp_path / "r" / "failures.jsonl")) == 2
    assert rebuilt(tmp_path) == bytes_of(tmp_path / "r")


ORDERS = st.permutations(range(6))


@settings(max_examples=8)
@given(first=ORDERS, second=ORDERS, taken=st.integers(1, 5))
def test_a_dataset_in_another_order_loses_no_entry(tmp_path_factory, first, second, taken):
    folder = tmp_path_factory.mktemp("moved")
    run([f"prompt {i}" for i in first[:taken]], folder)
    run([f"prompt {i}" for i in second], folder)
    assert len(lines_of(folder / "r" / "trajectories.jsonl")) == 6
    assert rebuilt(folder) == bytes_of(folder / "r")


def test_rows_with_other_columns_than_those_of_before_spoil_no_file(tmp_path):
    run([{"prompt": "a"}, {"prompt": "b", "level": 1}], tmp_path)
    run([{"prompt": "a"}, {"prompt": "b", "level": 1}], tmp_path, selection=Selection(first=1))
    run([{"prompt": "c", "level": "hard"}], tmp_path)
    found = [entry_metadata(line).get("level") for line in lines_of(tmp_path / "r" / "trajectories.jsonl")]
    assert sorted(found, key=str) == [1, None, "hard"]
    assert rebuilt(tmp_path) == bytes_of(tmp_path / "r")


def test_parts_of_an_earlier_shape_of_the_run_go(tmp_path):
    run([f"prompt {i}" for i in range(6)], tmp_path)
    list(run_batch([f"prompt {i}" for i in range(6)], agent=adding_agent(), name="r", folder=tmp_path, batch_size=10))
    assert [path.name for path in (tmp_path / "r").glob("batch_*")] == ["batch_001_output.jsonl"]
    assert len(lines_of(tmp_path / "r" / "trajectories.jsonl")) == 6


@pytest.mark.parametrize("name", ["trajectories.jsonl", "statistics.json", "batch_001_output.jsonl"])
def test_a_file_that_was_spoilt_is_right_again_after_the_next_run(tmp_path, name):
    run(["a", "bb"], tmp_path)
    before = bytes_of(tmp_path / "r")
    (tmp_path / "r" / name).write_bytes(b"spoilt")
    run(["a", "bb"], tmp_path)
    assert bytes_of(tmp_path / "r") == before
