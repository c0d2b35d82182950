"""A disk that fails or is full ends a batch with a clear error; the store is intact, and the run goes on later.

A run of 20 tasks meets an error at its N-th write, once or from then on, or has a file system without room. It says
which file could not be written, or never notices. Taken up again on a sound disk it ends as if nothing had been.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.audit import needs_strace, spread
from crash.batch_audit import Whole, assert_nothing_lost_or_repeated, batcher, calls_made, each, live, resume, unharmed
from store.child import finish, start

pytestmark = pytest.mark.usefixtures("own_temporary_files")
TASKS = 20
TOLD = re.compile(r"refused (NotWritten|StoreError) .*(stemma\.db|\.jsonl|statistics\.json)", re.DOTALL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Whole:
    return unharmed(tmp_path_factory.mktemp("whole"), TASKS)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, int]:
    """How often a clean run makes each call."""
    needs_strace()
    return calls_made(tmp_path_factory.mktemp("made") / "run", TASKS)


def fail_at(folder: Path, whole: Whole, call: str, error: str, numbers: list[int], *, lasting: bool) -> int:
    """Let the N-th `call` of a run fail; how often the run noticed."""

    def trial(n: int) -> bool:
        home = folder / f"{call}-{n}"
        code, said = live(home, TASKS, call, f"error={error}:when={n}{'+' if lasting else ''}")
        last = said[said.rfind("refused") :] if "refused" in said else said.splitlines()[-1]
        assert code == 0
        assert last == "done" or TOLD.match(last), said
        resume(home, TASKS)
        assert_nothing_lost_or_repeated(home, whole, lives=1)
        return last != "done"

    return sum(each(trial, numbers))


@pytest.mark.parametrize(
    ("call", "error", "lasting", "points"),
    [
        ("pwrite64", "ENOSPC", True, 5),
        ("pwrite64", "EIO", False, 4),
        ("fdatasync", "EIO", True, 3),
        ("fsync", "ENOSPC", True, 3),
    ],
)
def test_an_error_of_the_disk_ends_a_batch_clearly_and_it_goes_on_later(
    tmp_path, whole, made, call, error, lasting, points
):
    assert fail_at(tmp_path, whole, call, error, spread(made[call], points), lasting=lasting)


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "ftruncate", "fsync", "rename"])
def test_an_error_of_the_disk_at_many_calls_ends_a_batch_clearly(tmp_path, whole, made, call, error, lasting):
    assert fail_at(tmp_path, whole, call, error, spread(made[call], 12), lasting=lasting)


# ── no room ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[None]:
    """A file system of that size, in memory."""
    path.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root, to mount a small file system")
    tried = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", path], capture_output=True)
    if tried.returncode:
        pytest.skip(f"may not mount a small file system here: {tried.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def fill(folder: Path, whole: Whole, kilobytes: int) -> None:
    """Run on a disk that is too small; make room; run again."""
    disk = folder / f"disk-{kilobytes}"
    with small_disk(disk, kilobytes):
        said = finish(start(batcher(disk, TASKS)))
        told = said[said.rfind("refused") :]
        assert TOLD.match(told), said
        assert "full" in told or "No space" in told
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        resume(disk, TASKS)
        assert_nothing_lost_or_repeated(disk, whole, lives=1)


@pytest.mark.parametrize("kilobytes", [128, 512])
def test_a_full_disk_ends_a_batch_clearly_and_it_goes_on_when_there_is_room(tmp_path, whole, kilobytes):
    fill(tmp_path, whole, kilobytes)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", range(40, 680, 40))
def test_a_full_disk_of_any_size_ends_a_batch_clearly(tmp_path, whole, kilobytes):
    fill(tmp_path, whole, kilobytes)
