"""All processes of one sandbox together are bounded where a control group can be made, also for root."""

import asyncio
import os
from pathlib import Path

import pytest

import needs
from stemma.tools.cgroup import make_group, places
from stemma.tools.sandbox import ResourceLimits
from stemma.tools.terminal import terminal
from stemma.tools.workspace import Workspace

LIMITS = ResourceLimits(seconds=30, memory_mb=256, processes=64, file_mb=8, output_chars=2000)
FORKS = """
import os, time
made = 0
try:
    for made in range(400):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
except OSError:
    pass
print(made)
"""
HUNGRY = """
import os, signal, time
for _ in range(4):
    if os.fork() == 0:
        held = b"x" * (100 << 20)
        time.sleep(1)
        os._exit(0)
print(sum(os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGKILL for _ in range(4)))
"""


def run(command, root):
    async def session():
        here = await Workspace(root=root, limits=LIMITS).open()
        try:
            return await terminal(f"exec python3 -c '{command}' 2>&1", here, 20)
        finally:
            await here.close()

    return asyncio.run(session())


def group_or_skip():
    group = make_group(LIMITS)
    if group is None:
        pytest.skip("no control group can be made here")
    asyncio.run(group.remove())


@needs.command("bwrap", "bubblewrap")
def test_the_number_of_processes_is_bounded_whoever_owns_the_folder(tmp_path):
    if os.geteuid() == 0:
        group_or_skip()
    made = int(run(FORKS, tmp_path).text.split()[0])
    assert 0 < made < LIMITS.processes


@needs.command("bwrap", "bubblewrap")
def test_the_memory_of_all_processes_together_is_bounded(tmp_path):
    group_or_skip()
    ended = run(HUNGRY, tmp_path).text.split()[0]
    assert ended.isdigit()
    assert 1 <= int(ended) <= 3


@needs.command("bwrap", "bubblewrap")
def test_no_group_is_left_behind(tmp_path):
    group_or_skip()
    run("print(1)", tmp_path)
    mounts, membership = Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()
    for place in places(mounts, membership):
        assert list(place.folder.glob(f"stemma-{os.getpid()}-*")) == []


def mounted(folder, kind, options, root="/"):
    return f"31 23 0:28 {root} {folder} rw,relatime shared:9 - {kind} cgroup {options}\n"


def test_of_version_1_a_group_is_made_below_our_own(tmp_path):
    mounts = mounted(tmp_path / "pids", "cgroup", "rw,pids") + mounted(tmp_path / "m", "cgroup", "rw,memory", "/docker")
    found = places(mounts, "8:pids:/a/b\n4:memory:/docker/c\n0::/\n")
    assert {place.folder: controllers for place, controllers in found.items()} == {
        tmp_path / "pids/a/b": ["pids"],
        tmp_path / "m/c": ["memory"],
    }


@pytest.mark.parametrize(
    ("of_slice", "of_all", "where", "what"),
    [
        ("cpu memory pids", "memory pids", "user.slice", ["pids", "memory"]),
        ("pids", "cpu memory pids", ".", ["pids", "memory"]),
        ("pids", "cpu pids", "user.slice", ["pids"]),
    ],
)
def test_of_version_2_it_is_made_below_the_nearest_that_gives_most_controllers_on(
    tmp_path, of_slice, of_all, where, what
):
    own = tmp_path / "user.slice/session.scope"
    own.mkdir(parents=True)
    for folder, given in ((own, ""), (own.parent, of_slice), (tmp_path, of_all)):
        (folder / "cgroup.subtree_control").write_text(given)
    found = places(mounted(tmp_path, "cgroup2", "rw,nsdelegate"), "0::/user.slice/session.scope\n")
    assert {place.folder: controllers for place, controllers in found.items()} == {tmp_path / where: what}


def test_without_control_groups_there_is_no_place_for_one(tmp_path):
    assert places("22 1 0:20 / /proc rw - proc proc rw\n", "") == {}
    assert places(mounted(tmp_path, "cgroup2", "rw"), "0::/\n") == {}
