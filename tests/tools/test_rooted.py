"""File tools touch nothing outside their root: not by a path, not by a link, not by a race."""

import asyncio
import os
import resource
import shutil
import stat
import threading
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.tools import rooted
from stemma.tools.files import TOOLS, excerpt
from stemma.tools.rooted import PathEscapes, blocks, folder_of, reading, replacing
from stemma.tools.running import run_tool
from stemma.tools.search_program import files_below
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
    assert walk(root) == []


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
    assert walk(root) == ["a/b/c.txt"]
    assert not [p for p in (root / "a" / "b").iterdir() if p.name.endswith(".partial")]


def use(root, name, arguments, **more):
    async def run():
        workspace = await Workspace(root=root, **more).open()
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


@pytest.mark.parametrize("letter", [".", "é", "😀"])
@pytest.mark.parametrize("before", [1975, 1990, 1999, 2000])
def test_no_cut_of_a_line_leaves_a_part_of_a_secret(root, before, letter):
    key = "Zx81Qw92Er73Ty64Ui55"
    (root / "file").write_text(letter * before + key + letter * 9000)
    for name, arguments in {
        "read_file": {"path": "file"},
        "search_files": {"pattern": key},
        "patch": {"path": "file", "old": f"{letter * 110}!", "new": ""},
    }.items():
        text = use(root, name, arguments, secrets=[key]).text
        assert letter * 1900 in text
        assert not any(key[at : at + 3] in text for at in range(len(key) - 2))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("kept", [0o755, 0o600, 0o640, 0o444, 0o777])
def test_a_file_keeps_its_permissions_when_it_is_written_and_patched(root, kept):
    (root / "file").write_text("one")
    (root / "file").chmod(kept)
    assert use(root, "write_file", {"path": "file", "content": "two"}).ok
    assert ((root / "file").read_text(), mode(root / "file")) == ("two", kept)
    assert use(root, "patch", {"path": "file", "old": "two", "new": "three"}).ok
    assert ((root / "file").read_text(), mode(root / "file")) == ("three", kept)


def test_what_replaces_a_private_file_is_private_while_it_is_written(root):
    (root / "file").write_text("one")
    (root / "file").chmod(0o600)
    with replacing(root, "file") as target:
        target.write(b"two")
        target.flush()
        assert [mode(path) for path in root.iterdir()] == [0o600, 0o600]


def test_writing_takes_setuid_away_as_it_does_everywhere(root):
    (root / "file").write_text("one")
    (root / "file").chmod(0o4755)
    assert use(root, "write_file", {"path": "file", "content": "two"}).ok
    assert mode(root / "file") == 0o755


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_new_file_has_the_permissions_that_the_umask_leaves(root, umask, expected):
    before = os.umask(umask)
    try:
        assert use(root, "write_file", {"path": "file", "content": "x"}).ok
    finally:
        os.umask(before)
    assert mode(root / "file") == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can give files away")
def test_as_root_a_file_keeps_its_owner_and_a_new_one_is_its_folders(root):
    (root / "file").write_text("one")
    os.chown(root / "file", 1234, 1235)
    os.chown(root, 2345, 2346)
    for name in ("file", "new"):
        assert use(root, "write_file", {"path": name, "content": "two"}).ok
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in root.iterdir()}
    assert owners == {"file": (1234, 1235), "new": (2345, 2346)}


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(root):
    (root / "file").write_text("one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # the disk, as good as full
    try:
        with pytest.raises(OSError, match="too large"):
            write_bytes(root, "file", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not use(root, "patch", {"path": "file", "old": "none", "new": "x"}).ok
    assert [(path.name, path.read_text()) for path in root.iterdir()] == [("file", "one")]


ODD = st.lists(st.sampled_from([b"a", b"ab", b"b", b"\n", b"\r\n", b"\xff", "é".encode(), b""]), max_size=30).map(
    b"".join
)


@given(
    content=ODD, old=st.text("ab\né", min_size=1, max_size=4), new=st.text("ab", max_size=3), block=st.integers(1, 9)
)
def test_a_patch_does_what_replace_does_wherever_its_blocks_end(tmp_path_factory, content, old, new, block):
    root = tmp_path_factory.mktemp("patched")
    (root / "file").write_bytes(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rooted, "BLOCK", block)
        result = use(root, "patch", {"path": "file", "old": old, "new": new, "replace_all": True})
    found = content.count(old.encode())
    assert result.ok is (found > 0)
    assert (root / "file").read_bytes() == content.replace(old.encode(), new.encode())
    if found:
        assert result.text.startswith(f"replaced {found} ")


@given(content=ODD, block=st.integers(1, 9), offset=st.integers(1, 6), limit=st.integers(1, 6))
def test_what_is_read_does_not_depend_on_where_its_blocks_end(content, block, offset, limit):
    blocks_of = (content[i : i + block] for i in range(0, len(content), block))
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    found = excerpt(blocks_of, offset, limit)
    assert found == (lines[offset - 1 : offset - 1 + limit], len(lines))


def test_long_files_and_long_lines_are_read_on_where_the_reading_stopped(root):
    (root / "file").write_bytes(b"x" * 5000 + b"\r\n" + b"y\n" * 3000)
    first = use(root, "read_file", {"path": "file", "limit": 10**9}).text.splitlines()
    assert first[0] == "1\t" + "x" * 2000 + "… [the line goes on]"
    assert first[-1] == "… 1001 more lines; read on with offset=2001"
    assert use(root, "read_file", {"path": "file", "offset": 3001}).text == "3001\ty"
    assert use(root, "read_file", {"path": "file", "offset": 3002}).text == ""
    (root / "file").write_bytes((b"z" * 1999 + b"\n") * 2000)
    shown = use(root, "read_file", {"path": "file"}).text.splitlines()
    assert len(shown) < 200
    assert shown[-1] == f"… {2001 - len(shown)} more lines; read on with offset={len(shown)}"


def test_a_patch_that_would_make_a_file_too_large_is_refused(root):
    (root / "file").write_bytes(b"a" * (1 << 20))
    result = use(root, "patch", {"path": "file", "old": "a", "new": "b" * 1000, "replace_all": True})
    assert "larger than 64 MB" in result.text
    assert (root / "file").read_bytes() == b"a" * (1 << 20)
