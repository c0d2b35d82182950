"""A search finds what `re` finds, is bounded whatever it looks for and wherever, and stops nobody."""

import asyncio
import errno
import os
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stemma.tools import searching
from stemma.tools.files import TOOLS
from stemma.tools.running import run_tool
from stemma.tools.searching import search
from stemma.tools.tool import ToolError
from stemma.tools.workspace import Workspace


@settings(max_examples=20)
@given(
    st.lists(st.binary(max_size=30) | st.text("ab\n\ré").map(str.encode), max_size=4),
    st.sampled_from(["a", "^b*$", "é|\ud800", "", "\ufffd"]),
)
def test_it_finds_what_re_finds(tmp_path_factory, contents, pattern):
    root, expected = tmp_path_factory.mktemp("searched"), []
    for name, content in zip("abcd", contents, strict=False):
        (root / name).write_bytes(content)
        lines = [line.removesuffix(b"\r").decode("utf-8", "replace") for line in content.split(b"\n")]
        if content.endswith(b"\n") or not content:
            lines.pop()
        if b"\0" not in content:
            expected += [f"{name}:{n}:{line}" for n, line in enumerate(lines, 1) if re.search(pattern, line)]
    assert asyncio.run(search(root, ".", pattern, "*")) == ("\n".join(expected) or "no matches")


def test_a_pattern_that_never_ends_is_ended_and_meanwhile_all_else_goes_on(tmp_path):
    (tmp_path / "a").write_text("a" * 60 + "b")

    async def run():
        work = asyncio.ensure_future(search(tmp_path, ".", "(a+)+$", "*", seconds=1.0))
        rounds = 0
        while not work.done():
            await asyncio.sleep(0.01)
            rounds += 1
        return rounds, await asyncio.gather(work, return_exceptions=True)

    rounds, (problem,) = asyncio.run(run())
    assert isinstance(problem, ToolError)
    assert "simpler pattern" in str(problem)
    assert rounds > 10


def test_what_was_found_before_the_time_was_up_is_shown_with_a_word_about_it(tmp_path):
    (tmp_path / "a").write_text("aa\n" + "a" * 60 + "b")
    found = asyncio.run(search(tmp_path, ".", "(a+)+$", "*", seconds=1.0)).splitlines()
    assert found[0] == "a:1:aa"
    assert "took longer than 1 seconds" in found[1]


def test_a_search_that_nobody_waits_for_any_more_is_ended(tmp_path):
    (tmp_path / "a").write_text("a" * 60 + "b")

    async def run():
        work = asyncio.ensure_future(search(tmp_path, ".", "(a+)+$", "*"))
        await asyncio.sleep(0.5)
        work.cancel()
        begun = time.monotonic()
        await asyncio.wait([work])
        return time.monotonic() - begun

    before = set(os.listdir("/proc/self/fd"))
    assert asyncio.run(run()) < 5
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(
    "pattern", ["(", "[", "*", "(?P<a>", "(?<=a+)", "(" * 5000 + ")" * 5000, "a{99999999999999999999}"]
)
def test_what_is_no_pattern_is_told(tmp_path, pattern):
    with pytest.raises(ToolError, match="no regular expression"):
        asyncio.run(search(tmp_path, ".", pattern, "*"))


def test_a_pattern_that_needs_too_much_memory_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "_MEMORY", 100 << 20)
    (tmp_path / "a").write_bytes(b"ab" * (4 << 20))
    with pytest.raises(ToolError, match="memory"):
        asyncio.run(search(tmp_path, ".", "(?:(a)|b)*c", "*"))


def test_a_line_without_end_is_searched_in_pieces_and_told_once(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * (3 << 20) + b"needle\nneedle")
    first, second = asyncio.run(search(tmp_path, ".", "x|needle", "*")).splitlines()
    assert first == "a:1:" + "x" * 2000
    assert second == "a:2:needle"


def test_no_more_is_shown_than_a_model_can_read(tmp_path):
    (tmp_path / "a").write_text("needle\n" * 1000)
    found = asyncio.run(search(tmp_path, ".", "needle", "*")).splitlines()
    assert len(found) == 201
    assert "more matches" in found[-1]


def test_a_search_finds_in_the_folder_it_was_asked_for_by_the_paths_of_the_workspace(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.py").write_text("needle")
    (tmp_path / "c.py").write_text("needle")
    assert asyncio.run(search(tmp_path, "a", "needle", "*.py")) == "a/b/c.py:1:needle"
    assert asyncio.run(search(tmp_path, "/workspace/a/b", "needle", "a/*")) == "a/b/c.py:1:needle"
    with pytest.raises(ToolError, match="there is no 'none' there"):
        asyncio.run(search(tmp_path, "none", "needle", "*"))


def test_a_machine_that_has_nothing_left_is_no_file_to_pass_over(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to("nowhere")
    assert asyncio.run(search(tmp_path, ".", "needle", "*")) == "no matches"
    monkeypatch.setattr(searching, "EXHAUSTED", {errno.ELOOP})
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        asyncio.run(search(tmp_path, ".", "needle", "*"))


def test_a_search_over_many_files_is_quick(tmp_path):
    for i in range(300):
        (tmp_path / f"{i:03}.txt").write_text(f"line\nneedle {i}\n" * (i % 3 == 0))

    async def run():
        workspace = await Workspace(root=tmp_path).open()
        return await run_tool({tool.name: tool for tool in TOOLS}, "search_files", {"pattern": r"n\w+ 2\d7"}, workspace)

    begun = time.monotonic()
    result = asyncio.run(run())
    assert result.text.splitlines() == [
        "207.txt:2:needle 207",
        "237.txt:2:needle 237",
        "267.txt:2:needle 267",
        "297.txt:2:needle 297",
    ]
    assert time.monotonic() - begun < 5
