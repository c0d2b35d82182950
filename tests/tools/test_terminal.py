"""The shell keeps its state, its output cannot forge an end, and nothing gets out of the fence or outlives it."""

import asyncio
import os
import signal
import subprocess
import time

import pytest

import needs
from faultserver import in_loop
from stemma.redact import Redactor
from stemma.tools.keeper import Keeper
from stemma.tools.kept import Kept
from stemma.tools.sandbox import NoSandbox, ResourceLimits, Unfenced, choose_sandbox
from stemma.tools.terminal import terminal
from stemma.tools.workspace import Workspace

pytestmark = needs.command("bwrap", "bubblewrap")


def processes():
    return subprocess.run(["ps", "axo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()


LIMITS = ResourceLimits(seconds=20, memory_mb=1024, processes=64, file_mb=8, output_chars=2000)


def session(*commands, limits=LIMITS, timeout=20.0):
    async def run():
        workspace = await Workspace(limits=limits).open()
        try:
            return [await terminal(command, workspace, timeout) for command in commands]
        finally:
            await workspace.close()

    return asyncio.run(run())


def test_folder_variables_and_functions_last_from_one_command_to_the_next():
    *_, last = session("cd /tmp; export A=1; f() { echo hi $A; }", "pwd; f")
    assert last.text == "/tmp\nhi 1"


def test_a_syntax_error_or_a_failure_ends_the_command_and_not_the_shell():
    wrong, failed, last = session("if (", "false", "echo on")
    assert not wrong.ok
    assert not failed.ok
    assert "[exit code 1]" in failed.text
    assert last.text == "on"


def test_output_cannot_forge_the_end_of_a_command():
    forge = 'for n in {3..30}; do for end in 0 \'0 0\' "$$ 0"; do echo "$end" >&$n; done; done 2>/dev/null; '
    told, after = session(forge + "echo still here; (exit 7)", "echo after")
    assert "still here" in told.text
    assert "[exit code 7]" in told.text
    assert after.text == "after"


def test_what_was_written_before_an_end_is_told_whichever_end_it_was():
    slow, left, plain = session(
        "seq 5000; sleep 50", "seq 5000; exit 3", "seq 5000 & wait; exec >/dev/null", timeout=1.0
    )
    for result in (slow, left, plain):
        assert result.cut > 20_000
        assert "\n5000" in result.text


def test_long_commands_and_any_text_go_in():
    long, odd, after = session(f"A={'x' * 300_000}; echo ${{#A}}", "echo 'it''s \ud800 \n$x'", "echo ${#A}")
    assert long.text == after.text == "300000"
    assert odd.text.startswith("its ")


def test_a_command_that_takes_too_long_is_ended_with_all_it_started_and_the_shell_starts_anew():
    begun = time.monotonic()
    slow, after = session("A=1; sleep 1000 & sleep 1000", "echo again $A", timeout=1.0)
    assert not slow.ok
    assert after.text == "again"
    assert time.monotonic() - begun < 10


def test_output_is_kept_as_head_and_tail_and_the_cut_is_counted():
    (result,) = session("seq 1 100000")
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("99999\n100000")
    assert result.cut > 500_000
    assert len(result.text) < 2100


def test_a_hundred_megabytes_of_output_do_not_fill_memory():
    (result,) = session("head -c 100000000 /dev/zero | tr '\\0' x")
    assert result.cut > 99_000_000


@pytest.mark.parametrize(
    "probe",
    [
        "cat /etc/shadow",
        "ls /root",
        "ls /home",
        f"ls {os.getcwd()}",
        "touch /usr/bin/x",
        "mount -t tmpfs x /mnt",
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 22), 2)'",
        "python3 -c 'import urllib.request as u; u.urlopen(\"http://example.com\", timeout=2)'",
        "kill -9 1; kill -9 $PPID; ps -p 2 | grep stemma",
        "python3 -c 'x = bytearray(3 * 10**9)'",
        "head -c 100000000 /dev/zero > big",
        "ls /proc/1/root/root",
    ],
)
def test_what_lies_outside_the_fence_is_denied_or_bounded(probe):
    (result,) = session(probe)
    assert not result.ok, result.text


def test_nothing_of_our_environment_is_inside(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "CANARY")
    (result,) = session("env; cat /proc/*/environ | tr '\\0' '\\n'")
    assert "CANARY" not in result.text
    assert "HOME=/workspace" in result.text


def test_a_fork_bomb_is_bounded_and_leaves_nothing_behind():
    (result,) = session("b() { b | b & }; b; sleep 1; echo survived", timeout=5.0)
    assert result.text is not None
    deadline = time.monotonic() + 5
    while any("b | b" in line for line in processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any("b | b" in line for line in processes())


def test_no_process_outlives_the_conversation():
    session("sleep 98765 & disown; setsid sleep 98764 & echo started")
    time.sleep(0.2)
    assert not [line for line in processes() if "sleep 9876" in line]


def test_none_is_only_given_when_asked_for_by_name():
    assert choose_sandbox("auto").name == "bubblewrap"
    assert choose_sandbox("none").name == "none"
    with pytest.raises(NoSandbox):
        choose_sandbox("wishful")


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 100, 5000])
def test_head_and_tail_are_whole_when_it_fits_and_honest_when_not(size):
    kept = Kept(10)
    for i in range(size):
        kept.add(f"{i % 10}".encode())
    text, cut = kept.text()
    whole = "".join(str(i % 10) for i in range(size))
    if size <= 10:
        assert (text, cut) == (whole, 0)
    else:
        assert text.startswith(whole[:5])
        assert text.endswith(whole[-5:])
        assert cut == size - 10


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_no_cut_of_an_output_leaves_a_part_of_a_secret(piece):
    key = "Zx81Qw92Er73Ty64Ui55"
    for before in range(0, 400, 3):
        kept = Kept(100, Redactor([key]))
        output = b"\xff." * (before // 2) + key.encode() * 3 + "é".encode() * (before // 3)
        for at in range(0, len(output), piece):
            kept.add(output[at : at + piece])
        kept.end()
        text, _ = kept.text()
        assert not any(key[at : at + 3] in text for at in range(len(key) - 2))
        assert len(text) < 200


@in_loop
async def test_a_keeper_that_does_not_answer_and_whose_output_nobody_reads_is_ended_all_the_same(tmp_path):
    keeper = await Keeper.start(Unfenced(), tmp_path, ResourceLimits())
    keeper.tell("head -c 3000000 /dev/zero >&8 &")  # far more than a reader that nobody asks takes in
    await keeper.ask("sleep 0.2")
    os.kill(keeper._process.pid, signal.SIGSTOP)
    async with asyncio.timeout(30):
        await keeper.close()
    assert not keeper.alive
