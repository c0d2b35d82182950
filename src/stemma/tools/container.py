"""The fence of an image: a container by docker or podman.

A container is its engine's child and not ours, so killing the program that started it does not end it. It ends in three
ways: when the conversation closes we remove it by name; when we are killed its input ends, and what waits for that
inside ends everything; and when its shell ends the engine removes it. Each carries the label `stemma`, so
`podman ps --filter label=stemma` shows what is there. `tests/tools/test_container.py` proves it with a real engine.
"""

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from secrets import token_hex

import msgspec

from stemma.tools.protected import Mount
from stemma.tools.sandbox import ENVIRONMENT, INSIDE, Launch, NoSandbox, ResourceLimits

# Whoever writes to the shell is gone when its input ends: then nothing that runs beside it may go on.
_WHILE_SOMEBODY_ASKS = 'exec 7<&0; "$@" < <(cat <&7; kill -9 -1) 7<&-'

_PULL_SECONDS = 900.0
"""How long a container may take to start: its image may have to be pulled first."""

_INFO_SECONDS = 30.0
"""How long an engine may take to say that it is there."""


class Engine(msgspec.Struct, frozen=True):
    """A program that runs containers."""

    program: str
    rootless: bool = False
    """Whether root inside is nobody but ourselves outside."""


class Container:
    """A container of an image."""

    def __init__(self, image: str, *, engine: Engine, network: bool = False) -> None:
        self.image, self.engine, self.network = image, engine, network
        self.name = f"{Path(engine.program).name}:{image}"

    def launch(self, argv: list[str], root: Path, limits: ResourceLimits, mounts: Sequence[Mount] = ()) -> Launch:
        name = f"stemma-{token_hex(8)}"
        fence = [self.engine.program, "run", "--rm", "-i", "--name", name, "--label", "stemma", "--cap-drop", "ALL"]
        fence += ["--security-opt", "no-new-privileges", *self._user(root)]
        fence += ["--memory", f"{limits.memory_mb}m", "--pids-limit", str(limits.processes)]
        fence += [] if self.network else ["--network", "none"]
        for variable, value in ENVIRONMENT.items():
            fence += ["--env", f"{variable}={value}"]
        fence += ["--mount", f"type=bind,src={root},dst={INSIDE}", "--workdir", INSIDE]
        for part, writable in mounts:
            fence += ["--mount", f"type=bind,src={root / part},dst={INSIDE}/{part}{'' if writable else ',readonly'}"]
        inner = limits.around(["bash", "-c", _WHILE_SOMEBODY_ASKS, "bash", *argv], processes=False)
        fence += ["--entrypoint", inner[0], self.image, *inner[1:]]
        return Launch(
            argv=fence,
            environment=None,
            removal=[self.engine.program, "rm", "--force", name],
            start_seconds=_PULL_SECONDS,
        )

    def _user(self, root: Path) -> list[str]:
        """Inside, commands are whom the folder belongs to, so that what they write is not root's."""
        owner = root.stat()
        return [] if self.engine.rootless else ["--user", f"{owner.st_uid}:{owner.st_gid}"]


def find_engine(image: str) -> Engine:
    """The first of docker and podman that answers."""
    engine = next(filter(None, map(_engine, ("docker", "podman"))), None)
    if engine is None:
        raise NoSandbox(f"running in the image {image!r} needs docker or podman; install one of them and start it")
    return engine


@cache
def _engine(program: str) -> Engine | None:
    if shutil.which(program) is None:
        return None
    command = [program, "info", "--format", "{{json .}}"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INFO_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    if asked.returncode:
        return None
    return Engine(program, rootless='"rootless":true' in asked.stdout or "name=rootless" in asked.stdout)
