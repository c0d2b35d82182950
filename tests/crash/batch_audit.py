"""What must be true of a run that was killed and taken up again, and how it is killed."""

import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from batches import bytes_of, records_of
from crash.audit import busiest, run_under
from crash.batcher import batch_in
from stemma import open_store
from store.child import python

BATCHER = Path(__file__).with_name("batcher.py")
STATE_CHANGING = ("pwrite64", "fdatasync", "write", "ftruncate", "fsync", "rename", "mkdir", "unlink", "rmdir")
TRIALS_AT_ONCE = 2


class Whole(msgspec.Struct, frozen=True):
    """A run as it is if nobody kills it."""

    tasks: int
    files: dict[str, bytes]
    conversations: dict[str, Any]
    """By task: what was said, how many calls the graph has, and the record but for its attempts."""
    asked: int


def unharmed(folder: Path, tasks: int) -> Whole:
    """The run that others are compared with."""
    resume(folder, tasks)
    return Whole(tasks, bytes_of(folder / "r"), conversations(folder), asked(folder))


def conversations(folder: Path) -> dict[str, Any]:
    """What a run's store holds, to compare."""
    with open_store(folder / "r" / "stemma.db", create=False) as store:
        assert store.verify() == []
        return {
            name: (
                store.load(name).messages(),
                len(store.load(name).calls()),
                msgspec.structs.replace(record, attempts=0),
            )
            for name, record in records_of(folder, "r").items()
        }


def asked(folder: Path) -> int:
    """How many questions the model was asked, over all lives of the run."""
    path = folder / "asked"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def resume(folder: Path, tasks: int, concurrency: int = 3) -> int:
    """Run what is left, in this process; how many tasks that were."""
    folder.mkdir(exist_ok=True)
    return len(list(batch_in(folder, tasks, concurrency)))


def assert_nothing_lost_or_repeated(folder: Path, whole: Whole, lives: int, in_flight: int = 3) -> None:
    """After its last life a run is what it would have been; each life before cost no more than was in flight."""
    assert conversations(folder) == whole.conversations
    assert bytes_of(folder / "r") == whole.files
    assert whole.asked <= asked(folder) <= whole.asked + lives * in_flight
    assert not [path.name for path in (folder / "r").iterdir() if path.name.endswith(".partial")]


# ── one life of a run ────────────────────────────────────────────────────────────────────────────────────────────


def batcher(folder: Path, tasks: int, concurrency: int = 3, slow: float = 0.0) -> list[str]:
    """The command that runs the batch in a process of its own, among the temporary files of this one."""
    folder.mkdir(exist_ok=True)
    return ["env", f"TMPDIR={tempfile.gettempdir()}", *python(BATCHER, folder, tasks, concurrency, slow)]


def live(folder: Path, tasks: int, call: str, fault: str) -> tuple[int, str]:
    """Run the batch with a fault at one system call; its return code and what it said."""
    options = ["-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{fault}"]
    return run_under(options, batcher(folder, tasks))


def calls_made(folder: Path, tasks: int) -> dict[str, int]:
    """How often a clean run makes each system call that changes something."""
    log = folder.with_suffix(".strace")
    code, said = run_under(["-o", str(log), "-e", f"trace={','.join(STATE_CHANGING)}"], batcher(folder, tasks))
    assert (code, said.splitlines()[-1]) == (0, "done")
    return dict(busiest(log))


def each(trial: Callable[[Any], Any], points: Iterable[Any]) -> list[Any]:
    """Make every trial, some at once."""
    with ThreadPoolExecutor(TRIALS_AT_ONCE) as pool:
        return list(pool.map(trial, points))
