"""What the model did wrong is an error for the model; what the harness could not do never is."""

import asyncio
import errno
import os
import subprocess
import sys

import pytest

from stemma.errors import HarnessFailed, InternalError, OutOfResources
from stemma.tools import files, todo
from stemma.tools.running import run_tool
from stemma.tools.tool import ToolResult, as_tool
from stemma.tools.workspace import Workspace


def run(tool, arguments="{}", workspace=None):
    return asyncio.run(run_tool({tool.name: tool}, tool.name, arguments, workspace))


def raising(problem, **more):
    def own() -> str:
        """Break."""
        raise problem

    return as_tool(own, **more)


def wrapped(problem, *, hidden=False):
    """An error of a library's own around another."""
    try:
        try:
            raise problem
        except BaseException as inner:
            if hidden:
                raise ValueError("cannot connect") from None
            raise ValueError("cannot connect") from inner
    except ValueError as outer:
        return outer


EXHAUSTED = ["EMFILE", "ENFILE", "EAGAIN", "ENOMEM", "ENOBUFS", "ENOSPC", "EDQUOT", "EIO"]


@pytest.mark.parametrize("name", EXHAUSTED)
def test_a_system_that_has_nothing_left_is_no_tool_result_whoever_meets_it(name):
    number = getattr(errno, name)
    problem = OSError(number, os.strerror(number))
    for tool in (raising(problem), raising(wrapped(problem)), raising(wrapped(problem, hidden=True))):
        with pytest.raises(OutOfResources, match=name) as caught:
            run(tool)
        assert caught.value.retryable


@pytest.mark.parametrize(
    "problem", [MemoryError(), RuntimeError("can't start new thread"), ExceptionGroup("two", [OSError(24, "Too many")])]
)
def test_no_memory_and_no_threads_are_the_same(problem):
    with pytest.raises(OutOfResources):
        run(raising(problem))


@pytest.mark.parametrize(
    "problem",
    [ZeroDivisionError("by zero"), FileNotFoundError(2, "No such file"), AssertionError("odd"), RecursionError("deep")],
)
def test_what_a_tool_of_the_users_raises_is_told_to_the_model(problem):
    result = run(raising(problem))
    assert not result.ok
    assert str(problem) in result.text


@pytest.mark.parametrize("odd", [StopIteration("over"), asyncio.CancelledError("gone"), SystemExit(3)])
@pytest.mark.parametrize("quick", [False, True])
def test_what_would_end_more_than_the_call_is_an_error_of_the_call(odd, quick):
    result = run(raising(odd, quick=quick))
    assert result == ToolResult(text=f"Error: {type(odd).__name__}: {odd}", ok=False)


def test_a_tool_of_the_users_can_say_that_the_model_is_not_to_blame():
    with pytest.raises(HarnessFailed, match="the licence server is down"):
        run(raising(HarnessFailed("the licence server is down")))


def test_an_error_that_a_shipped_tool_does_not_raise_on_purpose_is_a_fault_of_ours():
    with pytest.raises(InternalError, match=r"todo: AttributeError") as caught:
        run(todo.TOOLS[0], "{}", workspace=None)  # has no workspace to look in
    assert not caught.value.retryable


def test_a_shipped_tool_tells_the_model_what_the_model_can_mend(tmp_path):
    read, write, *_ = files.TOOLS
    (tmp_path / "folder").mkdir()
    here = Workspace(root=tmp_path)
    assert "no 'x'" in run(read, '{"path": "x"}', here).text
    assert not run(write, '{"path": "folder", "content": ""}', here).ok
    assert not run(write, '{"path": "%s", "content": ""}' % ("n" * 300), here).ok


WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, sys
from pathlib import Path
from stemma.errors import OutOfResources
from stemma.tools import files
from stemma.tools.running import run_tool
from stemma.tools.workspace import Workspace

async def search():
    tools = {tool.name: tool for tool in files.TOOLS}
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        for _ in range(int(sys.argv[2])):
            os.close(taken.pop())
    try:
        return await run_tool(tools, "search_files", '{"pattern": "needle"}', Workspace(root=Path(sys.argv[1])))
    finally:
        for one in taken:
            os.close(one)

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    print(asyncio.run(search()))
except OutOfResources as problem:
    print("out of resources:", problem)
"""


@pytest.mark.parametrize("left", [0, 1, 4])
def test_a_search_without_descriptors_fails_and_does_not_say_that_nothing_matches(tmp_path, left):
    (tmp_path / "a.txt").write_text("needle")
    argv = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path), str(left)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "out of resources: Too many open files" in done.stdout, done.stdout + done.stderr


def test_secrets_are_taken_out_of_what_the_harness_says_too():
    with pytest.raises(HarnessFailed) as caught:
        run(raising(HarnessFailed("bad key sk-CANARY-1")), workspace=Workspace(secrets=["sk-CANARY-1"]))
    assert "CANARY" not in str(caught.value)


def test_a_tool_of_the_users_has_a_time_limit_and_can_have_its_own():
    async def slow() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "done"

    result = run(as_tool(slow, seconds=0.05))
    assert (result.ok, result.text) == (False, "Error: it took longer than 0.05 seconds")


@pytest.mark.parametrize(("most", "length"), [(None, 30_000), (100, 100)])
def test_a_tool_of_the_users_has_an_output_limit_and_can_have_its_own(most, length):
    def much() -> str:
        """Say much."""
        return "ab" * 500_000

    result = run(as_tool(much, output_chars=most))
    assert result.ok
    assert result.cut == 1_000_000 - length
    assert f"[{result.cut} characters left out]" in result.text
    assert len(result.text) < length + 100


def test_secrets_are_gone_before_a_result_is_cut():
    def leak() -> str:
        """Leak."""
        return "x" * 40 + "sk-CANARY-12345" + "y" * 500

    result = run(as_tool(leak, output_chars=100), workspace=Workspace(secrets=["sk-CANARY-12345"]))
    assert "sk-CAN" not in result.text


def test_a_result_whose_text_is_no_text_is_an_error():
    def odd() -> ToolResult:
        """Be odd."""
        return ToolResult(text=5)

    assert "must be a string" in run(as_tool(odd)).text
