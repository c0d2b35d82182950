"""Eight processes run one batch at once: they share the work, each task is done once, and the files are whole."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from batches import bytes_of, lines_of, records_of
from stemma import open_store
from stemma.batch.files import RunFiles
from stemma.batch.outputs import shape_of
from store.child import finish, python, start

SHARER = Path(__file__).with_name("sharer.py")
PROCESSES = 8


def run_at_once(folder: Path, names: list[str], tasks: int) -> list[list[str]]:
    """Start a process for each name, let all begin in one moment; what each ended."""
    processes = [start(python(SHARER, folder, name, tasks), stdin=subprocess.PIPE) for name in names]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [finish(process).splitlines() for process in processes]


def rebuilt(folder: Path, name: str) -> dict[str, bytes]:
    """The files of a run, made again from its store."""
    with open_store(folder / name / "stemma.db", create=False) as store:
        metadata = store.runs()[0].metadata
        RunFiles(folder / name, name, store, shape_of(metadata), metadata["about"]).finish()
    return bytes_of(folder / name)


def assert_done_once(folder: Path, name: str, tasks: int) -> None:
    found = records_of(folder, name)
    assert len(found) == tasks
    with open_store(folder / name / "stemma.db", create=False) as store:
        assert store.verify() == []
        for record in found.values():
            assert (record.status, record.attempts) == ("completed", 1)
            assert len(store.load(record.name).calls()) == record.api_calls == 2


def test_processes_that_run_one_batch_at_once_share_its_tasks(tmp_path):
    tasks = 70
    said = run_at_once(tmp_path, ["shared"] * PROCESSES, tasks)
    done = Counter(line for lines in said for line in lines)
    assert set(done.values()) == {1}
    assert len(done) == tasks
    assert sum(bool(lines) for lines in said) > 1, "more than one process was to find something to do"
    assert_done_once(tmp_path, "shared", tasks)
    files = bytes_of(tmp_path / "shared")
    assert len(lines_of(tmp_path / "shared" / "trajectories.jsonl")) == tasks
    assert files == rebuilt(tmp_path, "shared"), "the last to end left files that say all that the store says"


def test_runs_that_go_on_at_once_do_not_disturb_each_other(tmp_path):
    names = [f"run-{i}" for i in range(PROCESSES)]
    said = run_at_once(tmp_path, names, tasks=14)
    assert [len(lines) for lines in said] == [14] * PROCESSES
    for name in names:
        assert_done_once(tmp_path, name, 14)


@pytest.mark.slow
@pytest.mark.parametrize("time", range(10))
def test_processes_share_a_batch_again_and_again(tmp_path, time):
    test_processes_that_run_one_batch_at_once_share_its_tasks(tmp_path)
