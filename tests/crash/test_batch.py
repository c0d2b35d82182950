"""A batch that is killed at any system call loses nothing and repeats nothing once it is taken up again.

A run of 20 tasks, three at once, is killed by `kill -9` at its N-th system call that changes something, and in some
lives again while it resumes. At the end its store verifies, each conversation holds what it would hold without a kill
(every call once), all files are the same byte for byte, and the model was asked no more often than was in flight.
"""

import random
import signal
import time
from pathlib import Path

import pytest

from crash.audit import needs_strace, spread
from crash.batch_audit import (
    STATE_CHANGING,
    Whole,
    assert_nothing_lost_or_repeated,
    batcher,
    calls_made,
    each,
    live,
    resume,
    unharmed,
)
from store.child import start

pytestmark = pytest.mark.usefixtures("own_temporary_files")
TASKS = 20
KILL = "signal=KILL:when={}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Whole:
    return unharmed(tmp_path_factory.mktemp("whole"), TASKS)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, int]:
    """How often a clean run makes each call."""
    needs_strace()
    return calls_made(tmp_path_factory.mktemp("made") / "run", TASKS)


def kill_points(made: dict[str, int], points: int) -> list[tuple[str, int]]:
    """Calls and their numbers, spread over the run: each kind by its share, and at least some of each."""
    total = sum(made.values())
    shares = {
        call: max(round(points * made.get(call, 0) / total), min(points // 20, made.get(call, 0)))
        for call in STATE_CHANGING
    }
    return [(call, n) for call, share in shares.items() for n in spread(made.get(call, 0), share)]


def kill_and_resume(folder: Path, whole: Whole, point: tuple[str, int], again: tuple[str, int] | None = None) -> int:
    """Kill a run, perhaps kill its resume as well, let it end; how many kills there were."""
    home = folder / "-".join(map(str, point))
    kills = 0
    for call, n in filter(None, (point, again)):
        code, said = live(home, TASKS, call, KILL.format(n))
        assert code == -signal.SIGKILL or said.splitlines()[-1] == "done"
        kills += code == -signal.SIGKILL
    resume(home, TASKS)
    assert_nothing_lost_or_repeated(home, whole, kills)
    return kills


def kill_at_points(folder: Path, whole: Whole, points: list[tuple[str, int]]) -> None:
    kills = each(lambda point: kill_and_resume(folder, whole, point), points)
    assert sum(kills) >= 0.7 * len(points), "in most trials the run was to be killed"


def kill_twice_at_points(folder: Path, whole: Whole, points: list[tuple[str, int]], made: dict[str, int]) -> None:
    def trial(point: tuple[str, int]) -> int:
        chance = random.Random(str(point))
        call = chance.choice(["pwrite64", "pwrite64", "write", "fdatasync", "rename", "unlink"])
        return kill_and_resume(folder, whole, point, (call, chance.randrange(1, max(2, made[call] // 3))))

    assert sum(each(trial, points)) >= 1.3 * len(points), "in most trials the resume was to be killed as well"


def test_a_batch_killed_at_a_system_call_loses_and_repeats_nothing(tmp_path, whole, made):
    kill_at_points(tmp_path, whole, kill_points(made, 30))


def test_a_batch_killed_while_it_resumes_loses_and_repeats_nothing(tmp_path, whole, made):
    kill_twice_at_points(tmp_path, whole, [("pwrite64", n) for n in spread(made["pwrite64"], 8)], made)


@pytest.mark.slow
def test_a_batch_killed_at_each_of_300_system_calls_loses_and_repeats_nothing(tmp_path, whole, made):
    points = kill_points(made, 300)
    assert len(points) >= 300
    kill_at_points(tmp_path, whole, points)


@pytest.mark.slow
def test_a_batch_killed_again_in_100_resumes_loses_and_repeats_nothing(tmp_path, whole, made):
    kill_twice_at_points(tmp_path, whole, kill_points(made, 100)[:120], made)


# ── at any moment ────────────────────────────────────────────────────────────────────────────────────────────────


def kill_at_random(folder: Path, tasks: int, kills: int, seed: int, alive: tuple[float, float]) -> None:
    """Kill one life after the other at a random moment after its first sign of life, then let the run end."""
    whole = unharmed(folder / "whole", tasks)
    home, chance = folder / "killed", random.Random(seed)
    lives = 0
    for _ in range(kills):
        process = start(batcher(home, tasks, concurrency=4, slow=0.01))
        heard = process.stdout.readline()
        assert heard.startswith(("ended", "done")), process.stderr.read()
        time.sleep(chance.uniform(*alive))
        process.send_signal(signal.SIGKILL)
        said, complaint = process.communicate()
        assert complaint == ""
        lives += 1
        if "done" in heard + said:
            break
    resume(home, tasks, concurrency=4)
    assert_nothing_lost_or_repeated(home, whole, lives, in_flight=4)
    assert lives > 1, "it was to be killed more than once"


def test_a_batch_killed_at_random_moments_loses_and_repeats_nothing(tmp_path):
    kill_at_random(tmp_path, tasks=40, kills=4, seed=1, alive=(0.0, 0.06))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_batch_of_200_killed_at_random_moments_loses_and_repeats_nothing(tmp_path, seed):
    kill_at_random(tmp_path, tasks=200, kills=12, seed=seed, alive=(0.0, 0.12))
