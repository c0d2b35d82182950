"""A pattern finds what `re` finds, and one that never ends stops nobody."""

import asyncio
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stemma.tools.files import TOOLS
from stemma.tools.matching import Matcher
from stemma.tools.running import run_tool
from stemma.tools.tool import ToolError
from stemma.tools.workspace import Workspace


@settings(max_examples=20)
@given(
    st.lists(st.text("ab\n\r\u2028\ud800\0é", max_size=30), max_size=4), st.sampled_from(["a", "^b*$", "é|\ud800", ""])
)
def test_it_finds_what_re_finds(texts, pattern):
    with Matcher(pattern) as matcher:
        for text in texts:
            expected = [n for n, line in enumerate(text.splitlines(), 1) if re.search(pattern, line)]
            assert matcher.lines(text) == expected


def test_a_pattern_that_never_ends_is_ended_and_meanwhile_all_else_goes_on():
    async def run():
        def search():
            with Matcher("(a+)+$", seconds=1.0) as matcher:
                matcher.lines("a" * 60 + "b")

        searching = asyncio.ensure_future(asyncio.to_thread(search))
        rounds = 0
        while not searching.done():
            await asyncio.sleep(0.01)
            rounds += 1
        return rounds, await asyncio.gather(searching, return_exceptions=True)

    rounds, (problem,) = asyncio.run(run())
    assert isinstance(problem, ToolError)
    assert "simpler pattern" in str(problem)
    assert rounds > 10


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<a>", "(?<=a+)", "(" * 5000 + ")" * 5000])
def test_what_is_no_pattern_is_told(pattern):
    with pytest.raises(ToolError, match="no regular expression"):
        Matcher(pattern)


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
