"""Commands behind bubblewrap: each way out that we know of is tried for real, and is denied or bounded."""

import asyncio
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import needs
from stemma.tools.sandbox import ResourceLimits, choose_sandbox
from stemma.tools.terminal import terminal
from stemma.tools.workspace import Workspace

pytestmark = needs.command("bwrap", "bubblewrap")

LIMITS = ResourceLimits(seconds=20, memory_mb=1024, processes=64, file_mb=8, output_chars=2000)
CANARY = "CANARY-of-the-machine-outside"


def session(*commands, timeout=15.0, workspace=None):
    """What came of each command, in one conversation."""

    async def run():
        here = await (workspace or Workspace(limits=LIMITS)).open()
        try:
            return [await terminal(command, here, timeout) for command in commands]
        finally:
            await here.close()

    return asyncio.run(run())


def python(code):
    return f"python3 - <<'END'\n{code}\nEND"


def connecting(family, address, kind="SOCK_STREAM"):
    return python(
        f"import socket\ns = socket.socket(socket.{family}, socket.{kind})\ns.settimeout(2)\ns.connect({address!r})\n"
        "s.send(b'x')\ns.recv(1)"
    )


@pytest.fixture(scope="module")
def outside():
    """What a command would like to reach: a file, a process, and sockets that answer everybody."""
    folder = Path(tempfile.mkdtemp(prefix="outside-"))
    (folder / "secret").write_text(CANARY)
    for path in (folder, folder / "secret"):
        path.chmod(0o777)
    victim = subprocess.Popen(["sleep", "300"], env={"SECRET": CANARY})
    servers = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)]
    abstract = f"\0stemma-test-{os.getpid()}"
    for server, address in zip(servers, [str(folder / "socket"), abstract, ("127.0.0.1", 0)], strict=True):
        server.bind(address)
        server.listen()
        threading.Thread(target=_greet, args=[server], daemon=True).start()
    (folder / "socket").chmod(0o777)
    yield {"folder": folder, "victim": victim, "abstract": abstract, "port": servers[2].getsockname()[1]}
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
    assert victim.poll() is None, "a command ended a process outside"
    victim.kill()
    victim.wait()
    assert (folder / "secret").read_text() == CANARY
    shutil.rmtree(folder)


def _greet(server):
    while True:
        try:
            one, _ = server.accept()
        except OSError:
            return
        with one:
            one.send(CANARY.encode())


DENIED = {
    "read a file outside": "cat {folder}/secret",
    "write a file outside": "echo x > {folder}/secret",
    "list a folder outside": "ls {folder}",
    "read the shadow file": "cat /etc/shadow",
    "list root's home": "ls /root",
    "list all homes": "ls /home/",
    "go up from the folder": "cat ../../..{folder}/secret",
    "follow a link out of the folder": "ln -s {folder} out; cat out/secret",
    "hard-link a file outside": "ln {folder}/secret mine",
    "write into the system": "touch /usr/bin/x",
    "write beside the folder": "echo x > /x",
    "write into the list of users": "echo evil::0:0::/:/bin/sh >> /etc/passwd",
    "write among the devices": "mkdir /dev/x",
    "read by another process's root": "cat /proc/1/root{folder}/secret",
    "read by another process's folder": "cat /proc/1/cwd/../..{folder}/secret",
    "read the kernel's memory": "head -c 1 /proc/kcore",
    "read the physical memory": "head -c 1 /dev/mem",
    "change the kernel's settings": "echo 1 > /proc/sys/kernel/panic",
    "restart the machine": "echo b > /proc/sysrq-trigger",
    "see a process outside": "kill -0 {pid}",
    "end a process outside": "kill -9 {pid}",
    "read the memory of a process outside": "head -c 1 /proc/{pid}/mem",
    "read the environment of a process outside": "cat /proc/{pid}/environ",
    "trace a process outside": python("import ctypes, sys\nsys.exit(ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == -1)"),
    "connect to this machine": connecting("AF_INET", ("127.0.0.1", "PORT")).replace("'PORT'", "{port}"),
    "connect to the world": connecting("AF_INET", ("192.0.2.1", 80)),
    "connect by the sixth version": connecting("AF_INET6", ("2001:db8::1", 80)),
    "ask for a name": "getent hosts example.org",
    "send a packet": connecting("AF_INET", ("192.0.2.1", 53), "SOCK_DGRAM"),
    "send a raw packet": python("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    "listen to the wire": python("import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    "reach the hypervisor": python("import socket\nsocket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"),
    "use the kernel's cryptography": python("import socket\nsocket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)"),
    "pair sockets of another family": python("import socket\nsocket.socketpair(30, socket.SOCK_STREAM)"),
    "queue system calls past the filter": python(
        "import ctypes, sys\nsys.exit(ctypes.CDLL(None).syscall(425, 8, 0) < 0)"
    ),
    "use a socket of a file outside": connecting("AF_UNIX", "{folder}/socket"),
    "use an abstract socket outside": connecting("AF_UNIX", "{abstract}"),
    "mount": "mount -t tmpfs x /mnt",
    "mount in a namespace of its own": "unshare -Urm mount -t tmpfs x /mnt",
    "make a user namespace": "unshare -U true",
    "enter another namespace": "nsenter -t 1 -n true",
    "make a device": "mknod device c 1 1",
    "become root": python("import os\nos.setuid(0)"),
    "become root by a program that may": "cp /usr/bin/id id; chmod 4755 id; chown 0 id",
    "set the clock": "date -s 2001-01-01",
    "name the machine": "hostname evil",
    "leave by a changed root": python("import os\nos.chroot('/')"),
    "raise a limit": "ulimit -Hu 10000",
    "type into a terminal": python("import fcntl, termios\nfcntl.ioctl(open('/dev/tty'), termios.TIOCSTI, b'x')"),
    "type into its input": python("import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')"),
}
"""Every one of these must fail. What stands in braces is filled in from outside."""


@pytest.mark.parametrize("probe", DENIED.values(), ids=DENIED)
def test_what_lies_outside_is_denied(probe, outside):
    values = {**outside, "pid": outside["victim"].pid}
    command = probe
    for name, value in values.items():
        command = command.replace(f"{{{name}}}", str(value).replace("\0", "\\x00"))
    (result,) = session(command)
    assert not result.ok, result.text
    assert CANARY not in result.text


def test_nothing_of_our_environment_memory_or_open_files_is_inside(monkeypatch, outside):
    monkeypatch.setenv("MY_API_KEY", CANARY)
    with (outside["folder"] / "secret").open() as held:
        os.set_inheritable(held.fileno(), True)
        (result,) = session(
            "env; cat /proc/*/environ | tr '\\0' '\\n'; ls -l /proc/*/fd; timeout 1 cat /proc/*/fd/[3-9]*"
        )
    assert CANARY not in result.text
    assert "outside-" not in result.text
    assert "HOME=/workspace" in result.text


def test_no_capability_and_no_way_to_gain_one_is_inside():
    (result,) = session("grep -E 'Cap(Prm|Eff|Bnd)|NoNewPrivs' /proc/self/status")
    values = dict(line.split(":\t") for line in result.text.splitlines())
    assert {name: int(value, 16) for name, value in values.items()} == {
        "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "NoNewPrivs": 1
    }  # fmt: skip


def test_conversations_share_no_temporary_folder_shared_memory_or_queue(tmp_path):
    name = f"{os.getpid()}-{tmp_path.name}"  # like nothing else in this machine's own folder

    async def run():
        first, second = await Workspace(limits=LIMITS).open(), await Workspace(limits=LIMITS).open()
        try:
            await terminal(f"echo mine > /tmp/{name}; echo mine > /dev/shm/{name}; ipcmk -Q", first)
            asked = f"cat /tmp/{name} /dev/shm/{name}; ipcs -q | grep 0x"
            return await terminal(asked, second), first.root, second.root
        finally:
            await first.close()
            await second.close()

    result, first, second = asyncio.run(run())
    assert not result.ok
    assert "mine" not in result.text
    assert first != second
    assert not Path(f"/tmp/{name}").exists()


BOUNDED = {
    "memory": python("x = bytearray(3 * 10**9)"),
    "a file": "head -c 100000000 /dev/zero > big",
    "a file in memory": "head -c 100000000 /dev/zero > /tmp/big",
    "many files in memory": "for i in 1 2 3; do head -c 5000000 /dev/zero > /tmp/$i || exit 1; done",
    "shared memory": "for i in 1 2 3; do head -c 5000000 /dev/zero > /dev/shm/$i || exit 1; done",
    "memory of no process": python("import os\nos.memfd_create('x')"),
    "secret memory of no process": python(
        "import ctypes\nassert ctypes.CDLL(None).syscall(447, 0) >= 0, 'memfd_secret is refused'"
    ),
    "memory of System V": "ipcmk -M 1000000",
    "a sparse file": "truncate -s 10G sparse",
    "time": "sleep 1000",
    "time in a loop that catches signals": "trap '' TERM INT HUP; while :; do :; done",
}


@pytest.mark.parametrize("bomb", BOUNDED.values(), ids=BOUNDED)
def test_what_a_command_uses_is_bounded_and_the_next_one_works(bomb):
    bombed, after = session(f"( {bomb}\n)", "echo on", timeout=1.5)
    assert not bombed.ok
    assert after.text == "on"


def test_small_segments_of_system_v_memory_are_there_for_programs_that_need_one():
    (result,) = session("ipcmk -M 4096")
    assert result.ok, result.text


def test_a_fork_bomb_is_bounded_and_gone_with_the_conversation():
    session("b() { b | b & }; b; sleep 0.5; echo", timeout=2.0)
    assert left("b | b") == []


@pytest.mark.parametrize("flood", ["yes", "yes >&2", "cat /dev/zero"])
def test_a_flood_of_output_is_bounded_in_time_and_size(flood):
    (result,) = session(flood, timeout=1.0)
    assert not result.ok
    assert len(result.text) < 2500
    assert result.cut > 100_000


DAEMONS = {
    "in the background": "sleep {n} &",
    "disowned": "sleep {n} & disown",
    "in a session of its own": "setsid sleep {n} &",
    "deaf to hanging up": "nohup sleep {n} > /dev/null 2>&1 &",
    "twice removed": "( ( sleep {n} & ) & )",
    "deaf to signals": "bash -c 'trap \"\" TERM INT HUP; exec sleep {n}' &",
    "a daemon": python(
        "import os\nif os.fork() == 0:\n  os.setsid()\n  os.fork() or os.execlp('sleep', 'sleep', '{n}')"
    ),
}


def test_no_process_outlives_the_conversation():
    number = 98_700_000 + os.getpid() % 100_000
    started = session(*(way.format(n=number) for way in DAEMONS.values()), f"sleep 0.2; pgrep -cf 'sleep {number}'")
    assert int(started[-1].text) >= len(DAEMONS), "the daemons did not start"
    assert left(f"sleep {number}") == []


KILLED = """
import asyncio
from stemma.tools.terminal import terminal
from stemma.tools.workspace import Workspace

async def run():
    workspace = await Workspace().open()
    await terminal("setsid sleep NUMBER & sleep 0.1", workspace)
    print(workspace.root, flush=True)
    await terminal("sleep NUMBER", workspace)

asyncio.run(run())
"""


def test_no_process_outlives_us_when_we_are_killed():
    number = 98_600_000 + os.getpid() % 100_000
    ours = subprocess.Popen(
        [sys.executable, "-c", KILLED.replace("NUMBER", str(number))], stdout=subprocess.PIPE, text=True
    )
    with ours.stdout:
        folder = Path(ours.stdout.readline().strip())
    ours.kill()
    ours.wait()
    assert left(f"sleep {number}") == []
    folder.rmdir()


def left(command):
    """The processes that still run `command`, once those that are ending have had their time."""
    for _ in range(50):
        listed = subprocess.run(["ps", "axo", "stat,args"], capture_output=True, text=True, check=True).stdout
        found = [line for line in listed.splitlines() if command in line and not line.startswith("Z")]
        if not found:
            break
        time.sleep(0.1)
    return found


def test_a_key_in_our_keyring_is_not_read_inside():
    libc = ctypes.CDLL(None)
    session_keyring = -3
    if libc.syscall(248, b"user", b"stemma-canary", CANARY.encode(), len(CANARY), session_keyring) == -1:
        pytest.skip("the kernel lets nobody add keys here")
    read = python(
        "import ctypes\nl = ctypes.CDLL(None)\nkey = l.syscall(249, b'user', b'stemma-canary', None, 0)\n"
        "text = ctypes.create_string_buffer(99)\nl.syscall(250, 11, key, text, 99)\nprint(text.value)"
    )
    (result,) = session(read)
    assert CANARY not in result.text


@pytest.mark.parametrize("network", [False, True])
def test_the_network_is_there_only_when_allowed(network, outside):
    probe = python(f"import socket\nprint(socket.create_connection(('127.0.0.1', {outside['port']}), 2).recv(99))")
    fence = choose_sandbox(network=network)
    (result,) = session(probe, workspace=Workspace(sandbox=fence, limits=LIMITS))
    assert (CANARY in result.text) is network
