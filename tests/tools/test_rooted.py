"""File tools touch nothing outside their root: not by a path, not by a link, not by a race."""

import asyncio
import os
import shutil
import threading
from contextlib import suppress

import pytest

from stemma.tools.files import TOOLS
from stemma.tools.rooted import PathEscapes, read_bytes, walk, write_bytes
from stemma.tools.running import run_tool
from stemma.tools.tool import ToolError
from stemma.tools.workspace import Workspace

DIRECT = [
    "../secret",
    "a/../../secret",
    "/etc/passwd",
    "//etc/passwd",
    "..",
    ".",
    "",
    "/workspace/../etc/passwd",
    "a\0b",
]
DIRECT += ["/" * n + "etc/passwd" for n in range(1, 6)] + ["../" * n + "etc/passwd" for n in range(1, 40)]
DIRECT += [f"{prefix}/../../etc/passwd" for prefix in ("a", "./a", "a/./b/..", "/workspace", "/workspace/a")]


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret").write_text("SECRET")
    inside = tmp_path / "root"
    inside.mkdir()
    return inside


@pytest.mark.parametrize("path", DIRECT)
def test_no_path_leads_out(root, path):
    for attempt in (lambda: read_bytes(root, path), lambda: write_bytes(root, path, b"x")):
        with pytest.raises((PathEscapes, ToolError)):
            attempt()
    assert (root.parent / "secret").read_text() == "SECRET"


@pytest.mark.parametrize("link", ["file", "folder", "relative", "absolute"])
def test_no_link_leads_out(root, link):
    target = {"file": "../secret", "folder": "..", "relative": "../../", "absolute": str(root.parent)}[link]
    (root / "link").symlink_to(target)
    for path in ("link", "link/secret", "link/new"):
        with pytest.raises(ToolError):
            read_bytes(root, path)
        with pytest.raises(ToolError):
            write_bytes(root, path, b"x")
    assert not (root.parent / "new").exists()
    assert list(walk(root, ".")) == []


def test_devices_and_pipes_are_no_files(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(PathEscapes):
        read_bytes(root, "pipe")
    with pytest.raises(PathEscapes):
        write_bytes(root, "pipe", b"x")


def test_a_folder_swapped_for_a_link_while_files_are_written_leads_nowhere_else(root):
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "real").mkdir()
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            shutil.rmtree(root / "real", ignore_errors=True)
            with suppress(OSError):  # the writer has made the folder anew
                os.symlink(outside, root / "real")
                os.unlink(root / "real")
                os.mkdir(root / "real")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for i in range(1000):
            try:
                write_bytes(root, f"real/{i}", b"x")
            except (ToolError, OSError):
                continue
    finally:
        stop.set()
        swapping.join()
    assert list(outside.iterdir()) == []


def test_what_is_written_is_read_and_paths_as_the_shell_shows_them_work(root):
    write_bytes(root, "a/b/c.txt", "é\ud800".encode("utf-8", "surrogatepass"))
    assert read_bytes(root, "/workspace/a/b/c.txt") == "é\ud800".encode("utf-8", "surrogatepass")
    assert list(walk(root, ".")) == ["a/b/c.txt"]
    assert not [p for p in (root / "a" / "b").iterdir() if p.name.endswith(".partial")]


def use(root, name, arguments):
    async def run():
        workspace = await Workspace(root=root).open()
        return await run_tool({tool.name: tool for tool in TOOLS}, name, arguments, workspace)

    return asyncio.run(run())


def test_the_file_tools_read_write_patch_and_search(root):
    assert use(root, "write_file", {"path": "x.py", "content": "a = 1\nb = 2\nb = 2\n"}).ok
    assert use(root, "read_file", {"path": "x.py", "offset": 2, "limit": 1}).text.startswith("2\tb = 2\n… 1 more")
    assert "stands 2 times" in use(root, "patch", {"path": "x.py", "old": "b = 2", "new": "b = 3"}).text
    assert use(root, "patch", {"path": "x.py", "old": "a = 1", "new": "a = 9"}).ok
    assert "nearest line is 'a = 9'" in use(root, "patch", {"path": "x.py", "old": "a = 8", "new": ""}).text
    assert use(root, "search_files", {"pattern": r"a = \d", "glob": "*.py"}).text == "x.py:1:a = 9"
    assert use(root, "search_files", {"pattern": "("}).text.startswith("Error")
