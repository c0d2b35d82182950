"""Where commands run: a fence around each conversation's own folder.

A command sees its folder as `/workspace`, the system's programs read-only, and nothing else of this machine: no
environment of ours, no home, no network unless allowed; its processes end with it.

    bubblewrap   Linux namespaces; starts in milliseconds
    container    docker or podman, by image (`tools/container.py`)
    none         no fence at all, only when asked for by name; it is written down with the conversation

Covered: files, environment, network, other processes, the project's own settings (`tools/protected.py`), and system
calls that reach around all that (`tools/seccomp.py`); and through limits time, the memory of each process, the number
of processes, and the size of each file and of `/tmp`. A control group (`tools/cgroup.py`) bounds the memory of all
processes together, and the processes of root, where one can be made. Not covered: a kernel that can be broken out of,
what an allowed network lets a command do, and the size of the folder as a whole.
`tests/tools/test_sandbox.py` tries to get out.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec

from stemma.errors import HarnessFailed
from stemma.tools.protected import Mount
from stemma.tools.seccomp import seccomp_filter

INSIDE = "/workspace"
"""Where a fenced command finds its conversation's folder."""

ENVIRONMENT = {"HOME": INSIDE, "LANG": "C.UTF-8", "TERM": "dumb"}
"""All that a command finds set, beside PATH."""

_PATH = "/usr/local/bin:/usr/bin:/bin"


class NoSandbox(HarnessFailed):
    """There is nothing here to fence commands with."""

    retryable = False


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one command may use."""

    seconds: float = 120.0
    memory_mb: int = 4096
    processes: int = 512
    file_mb: int = 1024
    output_chars: int = 30_000
    """How much of its output the model gets: head and tail, the cut counted."""

    def around(self, argv: list[str], *, processes: bool) -> list[str]:
        """`argv` under these limits. The kernel counts processes by user: only a fence with users of its own bounds
        them this way."""
        bounds = {"v": self.memory_mb * 1024, "f": self.file_mb * 1024, "c": 0}
        if processes:
            bounds["u"] = self.processes
        script = "; ".join(f"ulimit -{flag} {bound} 2>/dev/null" for flag, bound in bounds.items())
        return ["bash", "-c", f'{script}; exec "$@"', "bash", *argv]


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a program behind a fence."""

    argv: list[str]
    environment: dict[str, str] | None
    """What `argv` is started with; None is what this process has, for a program of ours that starts the fenced one."""
    owner: tuple[int, int] | None = None
    """The user and group to start it as, if not ours."""
    removal: list[str] = []
    """What ends it from outside, where killing `argv` does not."""
    start_seconds: float = 30.0
    """How long it may take to start."""
    grouped: bool = False
    """Whether to start it in a control group, where one can be made."""


class Sandbox(Protocol):
    """A kind of fence."""

    @property
    def name(self) -> str:
        """What is written down of it."""
        ...

    @property
    def network(self) -> bool:
        """Whether commands reach the network."""
        ...

    def launch(self, argv: list[str], root: Path, limits: ResourceLimits, mounts: Sequence[Mount] = ()) -> Launch:
        """How to start `argv` behind the fence, with `root` as its folder and parts of it mounted as `mounts` says."""
        ...


class Bubblewrap:
    """Linux namespaces by `bwrap`."""

    name = "bubblewrap"

    def __init__(self, *, network: bool = False) -> None:
        self.network = network

    def launch(self, argv: list[str], root: Path, limits: ResourceLimits, mounts: Sequence[Mount] = ()) -> Launch:
        fence = [*self._fence(limits), "--bind", str(root), INSIDE]
        for part, writable in mounts:
            fence += ["--bind" if writable else "--ro-bind", str(root / part), f"{INSIDE}/{part}"]
        fence += ["--chdir", INSIDE, "--remount-ro", "/", "--"]
        inner = limits.around(argv, processes=True)
        return Launch(
            argv=_with_seccomp([*fence, *inner]),
            environment={"PATH": f"{os.defpath}:{_PATH}"},
            owner=_owner(root),
            grouped=True,
        )

    def _fence(self, limits: ResourceLimits) -> list[str]:
        fence = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
        if "--disable-userns" in _options():
            fence += ["--unshare-user", "--disable-userns"]
        if self.network:
            fence += ["--share-net", "--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
            fence += ["--ro-bind-try", "/etc/ssl", "/etc/ssl"]
        fence += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
        fence += [*_in_memory("/dev/shm", limits), "--remount-ro", "/dev", *_in_memory("/tmp", limits)]
        for folder in ("bin", "sbin", "lib", "lib64"):
            fence += _same_as_outside(folder)
        for file in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/localtime"):
            fence += ["--ro-bind-try", file, file]
        for name, value in {"PATH": _PATH, **ENVIRONMENT}.items():
            fence += ["--setenv", name, value]
        return fence


def _with_seccomp(argv: list[str]) -> list[str]:
    """`bwrap` reads its filter of system calls from a pipe, which a shell makes in passing."""
    filtering = seccomp_filter(os.uname().machine)
    if not filtering:
        return argv
    spelt = "".join(f"\\x{byte:02x}" for byte in filtering)
    return ["bash", "-c", 'exec "$1" --seccomp 10 "${@:2}" 10< <(printf %b "$0")', spelt, *argv]


@cache
def _options() -> str:
    """What this `bwrap` can do: some of it came in later versions."""
    return subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False).stdout


def _in_memory(folder: str, limits: ResourceLimits) -> list[str]:
    """A folder in memory, as large as one file may be."""
    size = ["--size", str(limits.file_mb << 20)] if "--size" in _options() else []
    return [*size, "--tmpfs", folder]


def _same_as_outside(folder: str) -> list[str]:
    """`/bin` and its like are links into `/usr` on most systems, folders on some."""
    path = Path("/", folder)
    if path.is_symlink():
        return ["--symlink", os.readlink(path), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.exists() else []


def _owner(root: Path) -> tuple[int, int] | None:
    """Whom the folder belongs to, if we are root: the kernel bounds no processes of root."""
    owner = root.stat()
    return None if os.geteuid() != 0 or owner.st_uid == 0 else (owner.st_uid, owner.st_gid)


class Unfenced:
    """No fence: commands can do whatever this process can, and nothing is protected from them. Even so they get none
    of its environment."""

    name = "none"
    network = True

    def launch(self, argv: list[str], root: Path, limits: ResourceLimits, mounts: Sequence[Mount] = ()) -> Launch:
        environment = {"PATH": _PATH, **ENVIRONMENT, "HOME": str(root)}
        return Launch(argv=limits.around(argv, processes=False), environment=environment, owner=_owner(root))


def choose_sandbox(kind: str = "auto", *, image: str | None = None, network: bool = False) -> Sandbox:
    """The fence to use: of an image if one is named, else bubblewrap; none only when asked for by name."""
    if image:
        from stemma.tools.container import Container, find_engine

        return Container(image, engine=find_engine(image), network=network)
    if kind == "none":
        return Unfenced()
    if kind in ("auto", "bubblewrap"):
        if shutil.which("bwrap"):
            return Bubblewrap(network=network)
        raise NoSandbox(
            "commands run behind bubblewrap, which is not installed: `apt install bubblewrap`, name an image, "
            "run without any fence by `--sandbox none`, or offer no terminal, such as by `--toolsets file,todo`"
        )
    raise NoSandbox(f"there is no sandbox {kind!r}; choose bubblewrap, an image, or none")
