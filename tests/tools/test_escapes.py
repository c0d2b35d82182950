"""File tools among hostile files: they lead nowhere else, hang on nothing, and lose nothing."""

import asyncio
import os
import socket
import threading
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.tools import rooted
from stemma.tools.files import TOOLS
from stemma.tools.rooted import PathEscapes, blocks, folder_of, parts_of, reading, replacing
from stemma.tools.running import run_tool
from stemma.tools.search_program import files_below
from stemma.tools.tool import ToolError
from stemma.tools.workspace import Workspace

SECRET = b"SECRET of the machine outside"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(SECRET)
    inside = tmp_path / "root"
    inside.mkdir()
    return inside


def read_bytes(root, path):
    with reading(root, path) as file:
        return b"".join(blocks(file, path))


def write_bytes(root, path, content):
    with replacing(root, path) as target:
        target.write(content)


def walk(root):
    """What a search looks at."""
    with folder_of(root, []) as folder:
        return [path for path, _ in files_below(folder, ".", "*")]


def use(root, name, **arguments):
    async def run():
        workspace = await Workspace(root=root).open()
        return await run_tool({tool.name: tool for tool in TOOLS}, name, arguments, workspace)

    return asyncio.run(run())


@contextmanager
def swapping(change):
    """Do `change` again and again, beside what happens in the block."""
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            with suppress(OSError):
                change()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def exchanging(root, name, target, make):
    """A name that is by turns what `make` makes, and a link to `target`."""

    def change():
        make(root / "fresh")
        os.rename(root / "fresh", root / name)
        os.symlink(target, root / "link")
        os.rename(root / "link", root / name)

    return change


def test_a_file_that_is_swapped_for_a_link_while_it_is_read_shows_nothing_of_outside(root):
    change = exchanging(root, "file", root.parent / "outside" / "file", lambda p: p.write_bytes(b"mine"))
    seen = set()
    with swapping(change):
        for _ in range(2000):
            with suppress(ToolError):
                seen.add(read_bytes(root, "file"))
    assert seen <= {b"mine", b""}
    assert b"mine" in seen


def test_a_folder_that_is_swapped_for_a_link_while_files_are_read_and_listed_shows_nothing_of_outside(root):
    def change():
        os.mkdir(root / "folder")
        (root / "folder" / "file").write_bytes(b"mine")
        os.unlink(root / "folder" / "file")
        os.rmdir(root / "folder")
        os.symlink(root.parent / "outside", root / "folder")
        os.unlink(root / "folder")

    seen, listed = set(), set()
    with swapping(change):
        for _ in range(1500):
            with suppress(ToolError):
                seen.add(read_bytes(root, "folder/file"))
            with suppress(ToolError, OSError):
                listed.update(walk(root))
    assert SECRET not in seen
    assert listed <= {"folder/file"}


def test_a_file_that_is_swapped_for_a_link_while_it_is_written_changes_nothing_outside(root):
    outside = root.parent / "outside" / "file"
    with swapping(exchanging(root, "file", outside, lambda p: p.write_bytes(b"mine"))):
        for _ in range(1000):
            with suppress(ToolError):
                write_bytes(root, "file", b"written")
    assert outside.read_bytes() == SECRET


def test_a_hard_link_is_replaced_and_not_written_through(root):
    outside = root.parent / "outside" / "file"
    os.link(outside, root / "file")
    write_bytes(root, "file", b"written")
    assert outside.read_bytes() == SECRET
    assert (root / "file").read_bytes() == b"written"


def fifo(path):
    os.mkfifo(path)


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def folder(path):
    path.mkdir()


def device(path):
    if os.geteuid() != 0:
        pytest.skip("only root can make a device")
    os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))


@pytest.mark.parametrize("kind", [fifo, unix_socket, folder, device])
@pytest.mark.parametrize("tool", ["read_file", "write_file", "patch"])
def test_what_is_no_plain_file_is_refused_at_once(root, tool, kind):
    kind(root / "odd")
    arguments = {"write_file": {"content": "x"}, "patch": {"old": "a", "new": "b"}}.get(tool, {})
    for path in ("odd", "odd/below"):
        assert not use(root, tool, path=path, **arguments).ok or kind is folder
    assert use(root, "search_files", pattern=".").ok


def test_a_file_too_large_to_read_is_refused_whole_and_never_cut(root, monkeypatch):
    monkeypatch.setattr(rooted, "MAX_BYTES", 1000)
    (root / "large").write_bytes(b"a" * 1001)
    for tool, arguments in (("read_file", {}), ("patch", {"old": "a", "new": "b", "replace_all": True})):
        result = use(root, tool, path="large", **arguments)
        assert not result.ok
        assert "larger" in result.text
    assert (root / "large").stat().st_size == 1001
    assert use(root, "search_files", pattern="a").text == "no matches"


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_patch_leaves_every_other_byte_as_it_was(tmp_path_factory, before, after):
    root = tmp_path_factory.mktemp("patch")
    (root / "file").write_bytes(before + b"<<old>>" + after)
    assert use(root, "patch", path="file", old="<<old>>", new="né\ud800w").ok
    assert (root / "file").read_bytes() == before + "né\ud800w".encode("utf-8", "surrogatepass") + after


@pytest.mark.parametrize(
    "name", ["a\nb", "  ", "-rf", "*", "\\", "\x1b[31m", "é", "\udcff", "a" * 255, "%2e%2e", "~", "$HOME"]
)
def test_odd_names_are_names_like_any_other(root, name):
    assert use(root, "write_file", path=name, content="needle").ok
    assert use(root, "read_file", path=name).text == "1\tneedle"
    assert walk(root) == [name]
    assert use(root, "search_files", pattern="needle").text == f"{name}:1:needle"


@pytest.mark.parametrize("name", ["\ud800", "a" * 256, "x/" * 3000, "\0"])
def test_names_that_no_file_can_have_are_refused_in_words(root, name):
    for tool, arguments in (("read_file", {}), ("write_file", {"content": "x"})):
        result = use(root, tool, path=name, **arguments)
        assert not result.ok
        assert result.text.startswith("Error: ")


@given(st.lists(st.sampled_from(["..", ".", "", "a", "/", "workspace", "~", "..."]), max_size=8))
def test_whatever_a_path_is_made_of_it_stays_below_the_root(tmp_path_factory, pieces):
    root = tmp_path_factory.getbasetemp()
    for start in ("", "/", "//", "/workspace/", f"{root}/"):
        try:
            parts = parts_of(start + "/".join(pieces), root)
        except PathEscapes:
            continue
        reached = os.path.normpath(os.path.join(root, *parts))
        assert os.path.commonpath([reached, root]) == str(root)


def test_a_path_as_an_unfenced_command_shows_it_works(root):
    assert use(root, "write_file", path=f"{root}/a.txt", content="x").ok
    assert (root / "a.txt").read_text() == "x"
