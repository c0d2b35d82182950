"""Processes in the background run beside the shell, are looked after by a tool, and end with the conversation."""

import asyncio
import os
import subprocess
import time
from contextlib import asynccontextmanager

import pytest

import needs
from faultserver import in_loop
from stemma.redact import MASK
from stemma.tools.processes import MOST_RUNNING, process
from stemma.tools.running import run_tool
from stemma.tools.sandbox import ResourceLimits, Unfenced
from stemma.tools.terminal import TOOLS, terminal
from stemma.tools.tool import ToolError
from stemma.tools.workspace import Workspace

pytestmark = needs.command("bwrap", "bubblewrap")
LIMITS = ResourceLimits(seconds=20, memory_mb=1024, processes=64, file_mb=8, output_chars=2000)


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


@in_loop
async def test_it_starts_at_once_and_its_output_and_exit_code_are_told():
    async with workspace() as here:
        begun = time.monotonic()
        started = await terminal("echo one; sleep 0.5; echo two >&2; exit 3", here, background=True)
        assert "p1" in started.text
        assert time.monotonic() - begun < 0.4
        result = await process("wait", here, "p1")
        assert result.text == "one\ntwo\n\n[p1 has ended with exit code 3]"


@in_loop
async def test_it_shares_folder_variables_functions_and_network_with_the_shell():
    async with workspace() as here:
        await terminal("mkdir sub; cd sub; A=1; f() { echo f $A in $PWD; }", here)
        await terminal("f", here, background=True)
        assert "f 1 in /workspace/sub" in (await process("wait", here, "p1")).text
        await terminal("echo found > page; python3 -m http.server 8123 --bind 127.0.0.1", here, background=True)
        ask = "for i in {1..100}; do (echo > /dev/tcp/127.0.0.1/8123) 2>/dev/null && break; sleep 0.1; done; "
        ask += "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8123/page\").read())'"
        assert "found" in (await terminal(ask, here)).text


@in_loop
async def test_only_new_output_is_shown_and_the_shell_goes_on_meanwhile():
    async with workspace() as here:
        await terminal("echo first; while [ ! -e go ]; do sleep 0.05; done; echo second", here, background=True)
        await asyncio.sleep(0.3)
        assert (await process("output", here, "p1")).text == "first\n\n[p1 runs]"
        assert (await terminal("touch go; echo free", here)).text == "free"
        assert (await process("wait", here, "p1")).text == "second\n\n[p1 has ended with exit code 0]"


@in_loop
async def test_a_secret_that_comes_in_two_looks_is_not_shown():
    key = "Zx81Qw92Er73Ty64Ui55"
    async with workspace(secrets=[key]) as here:
        halves = f"printf '%s' {key[:10]}; while [ ! -e go ]; do sleep 0.05; done; echo {key[10:]}"
        await terminal(f"printf 'it is: '; {halves}", here, background=True)
        seen = ""
        while "it is: " not in seen:
            seen += (await process("output", here, "p1")).text
            await asyncio.sleep(0.02)
        await terminal("touch go", here)
        seen += (await process("wait", here, "p1")).text
        assert key[:10] not in seen
        assert key[10:] not in seen
        assert MASK in seen


@in_loop
async def test_a_flood_of_output_is_bounded_and_does_not_stop_the_process():
    async with workspace() as here:
        await terminal("head -c 50000000 /dev/zero | tr '\\0' x; echo; echo end", here, background=True)
        result = await process("wait", here, "p1")
        assert result.cut > 49_000_000
        assert len(result.text) < 2200
        assert "end\n\n[p1 has ended with exit code 0]" in result.text


@in_loop
async def test_stopping_asks_first_and_then_insists_and_takes_children_along():
    async with workspace() as here:
        await terminal("trap 'echo bye; exit 4' TERM; while :; do sleep 0.05; done", here, background=True)
        await terminal("trap '' TERM; (trap '' TERM; sleep 87651) & sleep 87652", here, background=True)
        await asyncio.sleep(0.3)
        assert "bye\n\n[p1 has ended with exit code 4]" in (await process("stop", here, "p1")).text
        assert running("sleep 8765")
        assert "[p2 was stopped]" in (await process("stop", here, "p2")).text
        assert not running("sleep 8765")
        listed = (await process("list", here)).text.splitlines()
        assert [line.split()[0] for line in listed] == ["p1", "p2"]


@in_loop
async def test_a_command_that_takes_too_long_or_ends_the_shell_leaves_the_background_alone():
    async with workspace() as here:
        await terminal("for i in {1..1000}; do sleep 0.1; echo $i; done", here, background=True)
        assert "took too long" in (await terminal("sleep 50", here, timeout=0.5)).text
        assert "ended the shell" in (await terminal("exit 3", here)).text
        assert (await terminal("echo again", here)).text == "again"
        assert "[p1 runs]" in (await process("output", here, "p1")).text
        assert "[p1 has ended" in (await process("stop", here, "p1")).text


@in_loop
async def test_commands_that_start_at_the_same_time_share_one_shell():
    async with workspace() as here:
        both = asyncio.gather(*(terminal(f"A=$((A + 1)); sleep 6543{n} & echo $A", here) for n in range(3)))
        assert sorted(result.text for result in await both) == ["1", "2", "3"]
    await asyncio.sleep(0.2)
    assert not running("sleep 6543")


@in_loop
async def test_an_interrupted_command_is_ended_and_the_next_one_is_not_mixed_up_with_it():
    async with workspace() as here:
        slow = asyncio.ensure_future(terminal("echo old; sleep 1; echo old", here))
        await asyncio.sleep(0.3)
        slow.cancel()
        await asyncio.wait([slow])
        assert "old" not in (await terminal("sleep 1; echo new", here)).text


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
def test_no_process_outlives_the_workspace(sandbox):
    async def run():
        async with workspace(sandbox=Unfenced() if sandbox == "none" else None) as here:
            await terminal("trap '' TERM HUP; sleep 76541 & sleep 76542", here, background=True)
            await terminal("nohup sleep 76543 & true", here)
            deadline = time.monotonic() + 5
            while len(running("sleep 7654")) < 3 and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            assert len(running("sleep 7654")) >= 3
            return here.root

    root = asyncio.run(run())
    time.sleep(0.2)
    assert not running("sleep 7654")
    assert not root.exists()


@in_loop
async def test_a_fence_that_a_command_broke_is_told_and_another_is_put_up():
    async with workspace() as here:
        await terminal("sleep 100", here, background=True)
        await terminal("kill -9 -1", here)
        await asyncio.sleep(0.3)  # the fence falls once its first program is gone
        assert (await terminal("echo on", here)).text == "on"
        assert "[p1 has ended with its sandbox]" in (await process("output", here, "p1")).text
        assert "p2" in (await terminal("true", here, background=True)).text


@in_loop
async def test_nothing_is_left_in_the_folder_and_no_pipe_stays_open():
    before = len(os.listdir("/proc/self/fd"))
    async with workspace() as here:
        for _ in range(5):
            await terminal("true", here, background=True)
        assert os.listdir(here.root) == []
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@in_loop
async def test_what_the_model_asks_wrongly_is_answered_with_what_is_there():
    tools = {tool.name: tool for tool in TOOLS}
    async with workspace() as here:
        assert "there are: none" in (await run_tool(tools, "process", {"action": "stop", "id": "p9"}, here)).text
        assert not (await run_tool(tools, "process", {"action": "restart"}, here)).ok
        assert (await run_tool(tools, "process", {"action": "list"}, here)).ok


@in_loop
async def test_so_many_and_no_more_run_at_once():
    async with workspace() as here:
        for _ in range(MOST_RUNNING):
            await terminal("sleep 50", here, background=True)
        with pytest.raises(ToolError, match="stop one"):
            await terminal("sleep 50", here, background=True)
        await process("stop", here, "p1")
        assert (await terminal("sleep 50", here, background=True)).ok
