"""Where commands run: a fence around each conversation's own folder.

A command sees its folder as `/workspace`, the system's programs read-only, and nothing else of this machine: no
environment of ours, no home, no network unless allowed; its processes end with it.

    bubblewrap   Linux namespaces; starts in milliseconds
    container    docker or podman, by image
    none         no fence at all, only when asked for by name; it is written down with the conversation

Covered: files, environment, network, other processes, and through limits also time, memory, processes and file sizes.
Not covered: a kernel that can be broken out of, and what an allowed network lets a command do.
`tests/tools/test_sandbox.py` tries to get out.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from stemma.errors import StemmaError

INSIDE = "/workspace"
"""Where a fenced command finds its conversation's folder."""


class NoSandbox(StemmaError):
    """There is nothing here to fence commands with."""


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one command may use."""

    seconds: float = 120.0
    memory_mb: int = 4096
    processes: int = 512
    file_mb: int = 1024
    output_chars: int = 30_000
    """How much of its output the model gets: head and tail, the cut counted."""

    def shell(self) -> str:
        """The limits as a shell sets them for itself and all it starts."""
        bounds = {"v": self.memory_mb * 1024, "u": self.processes, "f": self.file_mb * 1024, "c": 0}
        return "; ".join(f"ulimit -{flag} {bound} 2>/dev/null" for flag, bound in bounds.items())


class Sandbox(Protocol):
    """A kind of fence."""

    name: str
    root_inside: str
    """The folder's path as commands see it."""

    def wrap(self, argv: list[str], root: Path) -> list[str]:
        """The command line that runs `argv` behind the fence, with `root` as its folder."""
        ...

    def environment(self) -> Mapping[str, str]:
        """The environment to start that command line with."""
        ...


class Bubblewrap:
    """Linux namespaces by `bwrap`."""

    name = "bubblewrap"
    root_inside = INSIDE

    def __init__(self, *, network: bool = False) -> None:
        self.network = network

    def wrap(self, argv: list[str], root: Path) -> list[str]:
        fence = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
        if self.network:
            fence += ["--share-net", "--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
            fence += ["--ro-bind-try", "/etc/ssl", "/etc/ssl"]
        fence += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        for folder in ("bin", "sbin", "lib", "lib64"):
            fence += _same_as_outside(folder)
        for file in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/localtime"):
            fence += ["--ro-bind-try", file, file]
        for name, value in self.inner_environment().items():
            fence += ["--setenv", name, value]
        return [*fence, "--bind", str(root), INSIDE, "--chdir", INSIDE, "--", *argv]

    @staticmethod
    def inner_environment() -> dict[str, str]:
        """All that a command finds set."""
        return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": INSIDE, "LANG": "C.UTF-8", "TERM": "dumb"}

    def environment(self) -> Mapping[str, str]:
        return {"PATH": os.defpath + ":/usr/local/bin:/usr/bin:/bin"}


def _same_as_outside(folder: str) -> list[str]:
    """`/bin` and its like are links into `/usr` on most systems, folders on some."""
    path = Path("/", folder)
    if path.is_symlink():
        return ["--symlink", os.readlink(path), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.exists() else []


class Container:
    """A container of an image, by docker or podman."""

    root_inside = INSIDE

    def __init__(self, image: str, *, engine: str, network: bool = False) -> None:
        self.image, self.engine, self.network = image, engine, network
        self.name = f"{engine}:{image}"

    def wrap(self, argv: list[str], root: Path) -> list[str]:
        network = [] if self.network else ["--network", "none"]
        fence = [self.engine, "run", "--rm", "-i", "--init", *network, "--security-opt", "no-new-privileges"]
        return [*fence, "-v", f"{root}:{INSIDE}", "-w", INSIDE, self.image, *argv]

    def environment(self) -> Mapping[str, str]:
        wanted = ("PATH", "HOME", "DOCKER_HOST", "XDG_RUNTIME_DIR")
        return {name: os.environ[name] for name in wanted if name in os.environ}


class Unfenced:
    """No fence: commands can do whatever this process can. Even so they get none of its environment."""

    name = "none"

    def __init__(self, root: Path | None = None) -> None:
        self.root_inside = str(root or "")

    def wrap(self, argv: list[str], root: Path) -> list[str]:
        self.root_inside = str(root)
        return argv

    def environment(self) -> Mapping[str, str]:
        return {**Bubblewrap.inner_environment(), "HOME": self.root_inside}


def choose_sandbox(kind: str = "auto", *, image: str | None = None, network: bool = False) -> Sandbox:
    """The fence to use: of an image if one is named, else bubblewrap; none only when asked for by name."""
    if image:
        engine = next((name for name in ("docker", "podman") if shutil.which(name)), None)
        if engine is None:
            raise NoSandbox(f"running in the image {image!r} needs docker or podman; install one of them")
        return Container(image, engine=engine, network=network)
    if kind == "none":
        return Unfenced()
    if kind in ("auto", "bubblewrap"):
        if shutil.which("bwrap"):
            return Bubblewrap(network=network)
        raise NoSandbox(
            "commands run behind bubblewrap, which is not installed: `apt install bubblewrap`, name an "
            "image, or run without any fence by `--sandbox none`"
        )
    raise NoSandbox(f"there is no sandbox {kind!r}; choose bubblewrap, an image, or none")
