"""A disk that fails at any write or sync costs the save that it fails, and nothing that was acknowledged.

The saver of this folder meets an error at its N-th system call, once or from then on. It is told `NotWritten`, or never
notices; all that it acknowledged is read back, the store verifies, and a later save works.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from crash.audit import acknowledged, assert_sound, counted, needs_strace, save_under, spread

SAVES = 8
TOLD = {"NotWritten", "StoreError"}
"""What the saver may be told: of a save, and of making or opening a store."""


def fail_at(folder: Path, call: str, error: str, points: int, *, lasting: bool) -> Counter[str]:
    """Let the N-th `call` fail, for N spread over a whole run; how often the saver was told, and how often not."""
    needs_strace()
    most = counted(folder / "clean.db", call, SAVES, seed=1)[call]
    outcomes: Counter[str] = Counter()
    for n in spread(most, points):
        path = folder / f"{call}-{n}.db"
        when = f"{n}+" if lasting else n
        inject = ["-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}"]
        code, said = save_under(inject, path, SAVES, seed=1)
        told = re.findall(r"^refused \S+ (\w+)\n", said, re.MULTILINE)
        assert code == 0, said
        assert set(told) <= TOLD, said
        assert said.splitlines()[-1] == "done" or said.startswith("refused opening"), said
        assert len(told) + said.count("saved") in (SAVES, 1), "each save is acknowledged or refused"
        assert_sound(path, acknowledged(said))
        outcomes["told" if told else "not noticed"] += 1
    return outcomes


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize(
    ("call", "error", "points"), [("pwrite64", "ENOSPC", 10), ("pwrite64", "EIO", 8), ("fdatasync", "EIO", 8)]
)
def test_an_error_of_the_disk_costs_no_more_than_the_save_it_fails(tmp_path, call, error, points, lasting):
    assert fail_at(tmp_path, call, error, points, lasting=lasting)["told"]


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EACCES", "EROFS"])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "ftruncate", "unlink"])
def test_an_error_of_the_disk_at_every_call_costs_no_more_than_the_save_it_fails(tmp_path, call, error, lasting):
    fail_at(tmp_path, call, error, 150, lasting=lasting)
