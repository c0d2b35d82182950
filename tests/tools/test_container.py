"""Behind the fence of an image: a real engine runs it, the shell keeps its state, and no container is left behind."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

import needs
from stemma.tools.container import Container, Engine
from stemma.tools.keeper import FenceBroken
from stemma.tools.sandbox import NoSandbox, ResourceLimits, choose_sandbox
from stemma.tools.terminal import terminal
from stemma.tools.workspace import Workspace

pytestmark = [needs.command("podman"), pytest.mark.slow]

IMAGE = "localhost/stemma-test"
PROGRAMS = ("bash", "cat", "sleep", "ls", "id", "env", "head", "touch", "setsid", "tr")
LIMITS = ResourceLimits(seconds=20, memory_mb=512, processes=64, file_mb=8, output_chars=2000)


def pack(target):
    """A root file system of this machine's shell and a few programs."""
    wanted = {Path(found) for name in PROGRAMS if (found := shutil.which(name))}
    for program in list(wanted):
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        wanted |= {Path(word) for word in linked.split() if word.startswith("/")}
    with tarfile.open(target, "w", dereference=True) as image:
        for file in sorted(wanted):
            image.add(file, arcname=str(file).removeprefix("/"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """A podman with a store of its own, set up for machines that are containers themselves."""
    home = tmp_path_factory.mktemp("podman")
    runtime = next((name for name in ("runc", "crun") if shutil.which(name)), "")
    (home / "containers.conf").write_text('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=512:512"]\n')
    flags = f"--root {home}/store --runroot {home}/run --storage-driver vfs --cgroup-manager cgroupfs"
    program = home / "podman"
    program.write_text(
        f"#!/bin/sh\nCONTAINERS_CONF={home}/containers.conf exec {shutil.which('podman')} {flags} --runtime {runtime} "
        '"$@"\n'
    )
    program.chmod(0o755)
    pack(home / "image.tar")
    subprocess.run([program, "import", home / "image.tar", IMAGE], capture_output=True, check=True)
    tried = subprocess.run([program, "run", "--rm", "--network", "none", IMAGE, "bash", "-c", ":"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"podman cannot run containers here: {tried.stderr.decode()[-200:]}")
    yield Engine(str(program), rootless=os.geteuid() != 0)
    subprocess.run([program, "rm", "--all", "--force"], capture_output=True, check=False)
    for mounted in (home / "store").glob("*"):
        subprocess.run(["umount", mounted], capture_output=True, check=False)


def left(engine):
    listed = [engine.program, "ps", "--all", "--quiet", "--filter", "label=stemma"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()


def session(engine, *commands, timeout=20.0):
    async def run():
        workspace = await Workspace(sandbox=Container(IMAGE, engine=engine), limits=LIMITS).open()
        try:
            return [await terminal(command, workspace, timeout) for command in commands]
        finally:
            await workspace.close()

    results = asyncio.run(run())
    assert left(engine) == []
    return results


def test_folder_and_variables_last_and_the_exit_code_comes_back(engine):
    *_, last, failed = session(engine, "cd /usr; A=1", "echo $A in $PWD; echo oops >&2", "(exit 7)")
    assert last.text == "1 in /usr\noops"
    assert "[exit code 7]" in failed.text


def test_nothing_of_ours_is_inside(engine, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "CANARY")
    said, home, network, write = session(
        engine, "env; cat /proc/*/environ", f"ls {Path.home()}", "echo > /dev/tcp/127.0.0.1/22", "touch /bin/x"
    )
    assert "CANARY" not in said.text
    assert not any(result.ok for result in (home, network, write))


def test_a_command_that_takes_too_long_is_ended_and_the_shell_starts_anew(engine):
    slow, after = session(engine, "sleep 1000 & setsid sleep 1000", "echo again", timeout=3.0)
    assert not slow.ok
    assert after.text == "again"


def test_what_commands_write_belongs_to_the_folders_owner(engine, tmp_path):
    os.chmod(tmp_path, 0o777)

    async def run():
        workspace = await Workspace(root=tmp_path, sandbox=Container(IMAGE, engine=engine), limits=LIMITS).open()
        try:
            await terminal("touch made", workspace)
        finally:
            await workspace.close()

    asyncio.run(run())
    assert (tmp_path / "made").stat().st_uid == tmp_path.stat().st_uid


def test_settings_and_hooks_cannot_be_written(engine, tmp_path):
    os.chmod(tmp_path, 0o777)
    (tmp_path / ".git/hooks").mkdir(parents=True)

    async def run():
        workspace = await Workspace(root=tmp_path, sandbox=Container(IMAGE, engine=engine), limits=LIMITS).open()
        try:
            paths = (".stemma/config.yaml", ".git/hooks/pre-commit", ".git/config", "mine")
            return [await terminal(f"echo evil > {path}", workspace) for path in paths]
        finally:
            await workspace.close()

    *refused, mine = asyncio.run(run())
    assert not any(result.ok for result in refused)
    assert mine.ok
    assert list((tmp_path / ".stemma").iterdir()) == list((tmp_path / ".git/hooks").iterdir()) == []


def test_processes_and_file_sizes_are_bounded(engine):
    bomb, big = session(engine, "b() { b | b & }; b; sleep 1; echo on", "head -c 20000000 /dev/zero > big", timeout=8.0)
    assert not big.ok
    assert bomb.text


def test_an_image_that_is_not_there_is_told(engine):
    async def run():
        sandbox = Container("localhost/no-such-image", engine=engine)
        workspace = await Workspace(sandbox=sandbox, limits=LIMITS).open()
        try:
            return await terminal("echo hi", workspace)
        finally:
            await workspace.close()

    with pytest.raises(FenceBroken, match="no-such-image"):
        asyncio.run(run())


KILLED = """
import asyncio, sys
from stemma.tools.container import Container, Engine
from stemma.tools.terminal import terminal
from stemma.tools.workspace import Workspace

async def run():
    workspace = await Workspace(sandbox=Container(sys.argv[2], engine=Engine(sys.argv[1]))).open()
    await terminal("setsid sleep 1000 & echo", workspace)
    print(workspace.root, flush=True)
    await terminal("sleep 1000", workspace)

asyncio.run(run())
"""


def test_a_container_ends_when_we_are_killed(engine):
    ours = subprocess.Popen([sys.executable, "-c", KILLED, engine.program, IMAGE], stdout=subprocess.PIPE, text=True)
    folder = ours.stdout.readline().strip()
    ours.stdout.close()
    assert left(engine)
    time.sleep(0.5)
    os.kill(ours.pid, signal.SIGKILL)
    ours.wait()
    deadline = time.monotonic() + 15
    while left(engine) and time.monotonic() < deadline:
        time.sleep(0.2)
    shutil.rmtree(folder)
    assert left(engine) == []


def test_without_an_engine_that_answers_an_image_is_refused(monkeypatch, tmp_path):
    from stemma.tools import container

    container._engine.cache_clear()
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSandbox, match="docker or podman"):
        choose_sandbox(image="debian")
    container._engine.cache_clear()
