"""Every wait for the sandbox has a limit: one that a command has stopped or starved is ended and replaced."""

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager

import pytest

import needs
from faultserver import in_loop
from stemma.tools.keeper import FenceBroken, Keeper
from stemma.tools.processes import process
from stemma.tools.sandbox import Launch, ResourceLimits
from stemma.tools.terminal import terminal
from stemma.tools.tool import ToolError
from stemma.tools.workspace import Workspace

pytestmark = needs.command("bwrap", "bubblewrap")
LIMITS = ResourceLimits(seconds=60, memory_mb=1024, processes=64, file_mb=8, output_chars=2000)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(Keeper, "answer_seconds", 2.0)


@asynccontextmanager
async def workspace(**options):
    here = await Workspace(limits=LIMITS, **options).open()
    try:
        yield here
    finally:
        await here.close()


def running(mark):
    listed = subprocess.run(["ps", "axo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if mark in line]


async def left(mark):
    """What still runs, once those that are ending have had their time."""
    for _ in range(100):
        if not running(mark):
            break
        await asyncio.sleep(0.05)
    return running(mark)


@in_loop
async def test_a_sandbox_that_was_stopped_is_replaced_and_the_model_is_told():
    async with workspace() as here:
        await terminal("A=1; sleep 1000", here, background=True)
        await terminal("A=1; kill -STOP -1", here)
        result = await terminal("echo on $A", here)
        assert result.ok
        assert result.text.startswith("[the sandbox did not answer and was started anew")
        assert result.text.endswith("\non")
        assert (await terminal("echo as usual", here)).text == "as usual"
        assert "[p1 has ended with its sandbox]" in (await process("output", here, "p1")).text


@in_loop
async def test_a_start_in_the_background_is_not_waited_for_without_end():
    async with workspace() as here:
        await terminal("kill -STOP -1", here)
        with pytest.raises(ToolError, match="try again"):
            await terminal("echo hi", here, background=True)
        assert "p1" in (await terminal("echo hi", here, background=True)).text
        assert "hi" in (await process("wait", here, "p1")).text


@in_loop
async def test_a_background_start_whose_pipe_is_taken_away_ends_and_the_shell_starts_anew():
    async with workspace() as here:
        # Whatever is put in the place of the pipe has no reader: to open it waits for ever.
        thief = "while :; do for p in .*.pipe; do [ -p $p ] && rm -f $p && mkfifo $p; done; done"
        await terminal(f"( {thief} ) > /dev/null 2>&1 & disown", here)
        for _ in range(20):
            try:
                await terminal("true", here, background=True)
            except ToolError:
                break
        assert (await terminal("echo on", here)).text.endswith("on")


@in_loop
async def test_a_command_that_stops_everything_else_is_still_ended_when_its_time_is_up():
    mark = f"sleep {98_500_000 + os.getpid() % 100_000}"
    async with workspace() as here:
        result = await terminal(f"({mark} &); kill -STOP -1; {mark}", here, timeout=0.5)
        assert "took too long" in result.text
        assert await left(mark) == []


@in_loop
async def test_stopping_a_process_of_a_stopped_sandbox_ends_it():
    mark = f"sleep {98_400_000 + os.getpid() % 100_000}"
    async with workspace() as here:
        await terminal(mark, here, background=True)
        await terminal("kill -STOP -1", here)
        assert "p1" in (await process("stop", here, "p1")).text
        assert await left(mark) == []


@in_loop
async def test_a_workspace_of_a_stopped_sandbox_closes_and_leaves_nothing():
    mark = f"sleep {98_300_000 + os.getpid() % 100_000}"
    async with workspace() as here:
        await terminal(f"setsid {mark} & kill -STOP -1", here)
    assert await left(mark) == []


class Stuck:
    """A sandbox whose program never answers."""

    name, network = "stuck", False

    def launch(self, argv, root, limits, mounts=()):
        return Launch(argv=["sleep", "1000"], environment=None, start_seconds=0.5)


@in_loop
async def test_a_sandbox_that_does_not_start_in_time_is_an_error():
    async with workspace(sandbox=Stuck()) as here:
        with pytest.raises(FenceBroken, match=r"did not start within 0\.5 s"):
            await terminal("echo hi", here)
