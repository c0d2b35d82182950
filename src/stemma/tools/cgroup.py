"""Control groups (cgroups): bounds on all processes of one sandbox together.

Limits of single processes (`ulimit`) leave two gaps: RLIMIT_NPROC does not bind root, and RLIMIT_AS counts each process
by itself. Where the kernel lets us make a control group, as it lets root in most places, `pids` and `memory` close
both; elsewhere there is none, and `make_group` says so by None. Version 1 and version 2 are known; a group of version 1
is made below our own, one of version 2 beside it, since a group with processes cannot have groups with controllers.
`tests/tools/test_cgroup.py` proves it.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from stemma.tools.sandbox import ResourceLimits

_CONTROLLERS = ("pids", "memory")
_REMOVAL_TRIES, _REMOVAL_PAUSE = 100, 0.01


class _Place(NamedTuple):
    """A group of the kernel's in which we may be able to make another."""

    folder: Path
    version: int


class _Mount(NamedTuple):
    """A hierarchy of groups, as mounted."""

    kind: str
    options: str
    root: str
    """Which part of the hierarchy is mounted."""
    folder: str


class ControlGroup:
    """A group of processes that share limits."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    def add(self, pid: int) -> None:
        """Put a process into it; all that it starts from then on is in it, too."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    async def remove(self) -> None:
        """Remove it, as soon as its last process has ended."""
        for _ in range(_REMOVAL_TRIES):
            self._folders = [folder for folder in self._folders if not _removed(folder)]
            if not self._folders:
                return
            await asyncio.sleep(_REMOVAL_PAUSE)


def make_group(limits: ResourceLimits) -> ControlGroup | None:
    """A new group with these limits; None where one cannot be made."""
    made: list[Path] = []
    try:
        for place, controllers in _our_places().items():
            folder = place.folder / f"stemma-{os.getpid()}-{token_hex(8)}"
            folder.mkdir()
            made.append(folder)
            for controller in controllers:
                _set_limits(folder, place.version, controller, limits)
    except OSError:
        for folder in made:
            _removed(folder)
        return None
    return ControlGroup(made) if made else None


def _set_limits(folder: Path, version: int, controller: str, limits: ResourceLimits) -> None:
    memory = str(limits.memory_mb << 20)
    if controller == "pids":
        (folder / "pids.max").write_text(str(limits.processes))
    elif version == 1:
        (folder / "memory.limit_in_bytes").write_text(memory)
        _write_if_there(folder / "memory.memsw.limit_in_bytes", memory)
    else:
        (folder / "memory.max").write_text(memory)
        _write_if_there(folder / "memory.swap.max", "0")


def _write_if_there(file: Path, text: str) -> None:
    if file.exists():
        file.write_text(text)


@cache
def _our_places() -> dict[_Place, list[str]]:
    found = places(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    for place in found:
        _remove_abandoned(place.folder)
    return found


def places(mountinfo: str, membership: str) -> dict[_Place, list[str]]:
    """Where groups can be made, with the controllers of each, by the kernel's account of mounts and of our groups."""
    mounts, own = list(_cgroup_mounts(mountinfo)), dict(_memberships(membership))
    found = {controller: _version_1(controller, mounts, own) for controller in _CONTROLLERS}
    old: dict[_Place, list[str]] = {}
    for controller, place in found.items():
        if place is not None:
            old.setdefault(place, []).append(controller)
    return old | _version_2([controller for controller, place in found.items() if place is None], mounts, own)


def _version_1(controller: str, mounts: list[_Mount], own: dict[str, str]) -> _Place | None:
    for mount in mounts:
        if mount.kind == "cgroup" and controller in mount.options.split(",") and controller in own:
            return _Place(_folder(mount, own[controller]), 1)
    return None


def _version_2(controllers: list[str], mounts: list[_Mount], own: dict[str, str]) -> dict[_Place, list[str]]:
    """Our own group, or the nearest above it, that gives the most of these to those below it: a process is in one."""
    for mount in mounts:
        if mount.kind == "cgroup2" and "" in own:
            folder = _folder(mount, own[""])
            above = [folder, *folder.parents]
            given = {
                _Place(candidate, 2): [name for name in controllers if name in _given_on(candidate)]
                for candidate in above[: above.index(Path(mount.folder)) + 1]
            }
            best = max(given, key=lambda place: len(given[place]))
            return {best: given[best]} if given[best] else {}
    return {}


def _given_on(group: Path) -> list[str]:
    file = group / "cgroup.subtree_control"
    return file.read_text().split() if file.is_file() else []


def _memberships(membership: str) -> Iterator[tuple[str, str]]:
    """The path of our group for each controller of version 1, and under "" that of version 2."""
    for line in membership.splitlines():
        _, names, path = line.split(":", 2)
        yield from ((name, path) for name in names.split(","))


def _cgroup_mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            _, _, _, root, folder, *_ = fields.split(" ")
            yield _Mount(kind, options, root, folder)


def _folder(mount: _Mount, group: str) -> Path:
    """Where a group is to be found; the mounted part itself if the group is not below it."""
    inner = os.path.relpath(group, mount.root)
    return Path(mount.folder) if inner.startswith("..") else Path(mount.folder, inner)


def _remove_abandoned(folder: Path) -> None:
    """Remove the empty groups of processes that were killed before they could do so themselves."""
    for group in folder.glob("stemma-*-*"):
        pid = group.name.split("-")[1]
        if pid.isdigit() and not Path("/proc", pid).exists():
            _removed(group)


def _removed(folder: Path) -> bool:
    with suppress(FileNotFoundError):
        try:
            folder.rmdir()
        except OSError:
            return False
    return True
