"""What `save` has returned for survives `kill -9` at any moment, and no kill leaves anything half done.

The saver of this folder is killed at random moments and at chosen system calls, also while it recovers from the kill
before. Each time all that it acknowledged is read back, the store verifies, and a further save works.
"""

import random
import re
import signal
import time
from pathlib import Path

import pytest

from crash.audit import (
    SAVER,
    acknowledged,
    assert_sound,
    counted,
    needs_strace,
    save_under,
    spread,
)
from store.child import finish, python, start

SAVES = 12
STATE_CHANGING = ["pwrite64", "fdatasync", "write", "ftruncate", "unlink"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# ── at any moment ────────────────────────────────────────────────────────────────────────────────────────────────


def kill_at_random(path: Path, kills: int, seed: int) -> None:
    """Kill one saver after another on the same store; each goes on where the last was stopped."""
    chance, acks = random.Random(seed), {}
    for number in range(kills):
        process = start(python(SAVER, path, 10_000, seed + number))
        if number % 3:
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0, 0.15))
        else:
            time.sleep(chance.uniform(0.05, 0.4))  # while it starts, makes the store, or recovers it
        process.send_signal(signal.SIGKILL)
        said, complaint = process.communicate()
        assert complaint == ""
        acks |= acknowledged(said)
        assert_sound(path, acks)
    assert acks, "the saver was to save something"
    assert finish(start(python(SAVER, path, 5, seed))).splitlines()[-1] == "done"
    assert_sound(path, acks)


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_acknowledged_survives_a_kill_at_any_moment(path, seed):
    kill_at_random(path, kills=13, seed=100 * seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 13))
def test_what_was_acknowledged_survives_a_kill_at_any_moment_many_times(path, seed):
    kill_at_random(path, kills=25, seed=100 * seed)


# ── at each system call that changes something ───────────────────────────────────────────────────────────────────


def kill_at(call: str, points: int, folder: Path) -> int:
    """Kill the saver at its N-th `call`, for N spread over a whole run, making the store included; how many kills."""
    needs_strace()
    most = counted(folder / "clean.db", call, SAVES, seed=1)[call]
    chance, kills = random.Random(call), 0
    for n in spread(most, points):
        path = folder / f"{call}-{n}.db"
        inject = ["-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}"]
        code, said = save_under(inject, path, SAVES, seed=1)
        kills += code == -signal.SIGKILL
        acks = acknowledged(said)
        if n % 3 == 0:  # and again, while it recovers or soon after
            again = ["-o", "/dev/null", "-e", f"trace={call}"]
            again += ["-e", f"inject={call}:signal=KILL:when={chance.randrange(1, 8)}"]
            code, said = save_under(again, path, SAVES, seed=n)
            kills += code == -signal.SIGKILL
            acks |= acknowledged(said)
        assert_sound(path, acks)
    assert kills >= min(points, most) - 1
    return kills


@pytest.mark.parametrize(("call", "points"), [("pwrite64", 36), ("fdatasync", 14), ("write", 14), ("ftruncate", 8)])
def test_a_kill_at_a_system_call_loses_and_halves_nothing(tmp_path, call, points):
    kill_at(call, points, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("call", STATE_CHANGING)
def test_a_kill_at_every_system_call_loses_and_halves_nothing(tmp_path, call):
    kill_at(call, 10_000, tmp_path)


# ── the acknowledgement rule ─────────────────────────────────────────────────────────────────────────────────────


def test_every_acknowledgement_comes_after_the_log_was_synced(path, tmp_path):
    """Between the last write to the write-ahead log and the word `saved` the log is synced, whole."""
    needs_strace()
    log = tmp_path / "trace"
    options = ["-y", "-s", "64", "-o", str(log), "-e", "trace=pwrite64,fdatasync,fsync,write"]
    code, said = save_under(options, path, SAVES, seed=1)
    assert (code, len(acknowledged(said)) > 0) == (0, True)
    written_at = synced_from = -1
    began: dict[str, int] = {}
    acks = 0
    for moment, line in enumerate(log.read_text().splitlines()):
        thread, rest = line.split(maxsplit=1)
        if re.match(r"write\(1<[^>]*>, \"saved ", rest):
            acks += 1
            assert written_at < synced_from, f"acknowledged before the log was synced: {line}"
            continue
        resumed = rest.startswith("<... ")
        if "-wal>" in rest:
            began[thread] = moment
        name = re.match(r"(?:<\.\.\. )?(\w+)", rest)[1]
        if "<unfinished" in rest or thread not in began or not ("-wal>" in rest or resumed):
            continue
        if name == "pwrite64":
            written_at = moment
        elif name in ("fdatasync", "fsync") and rest.endswith("= 0"):
            synced_from = began[thread]
        del began[thread]
    assert acks == SAVES
