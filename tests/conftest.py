"""What all tests share: how hypothesis runs, skips for packages that are missing, and a thread whose stack is short."""

import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator

import pytest
from hypothesis import settings

from stemma.errors import MissingExtra

settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)  # the same examples in every run
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """A test that needs an optional package which is not installed is skipped, with the words that name the package."""
    try:
        return (yield)
    except MissingExtra as problem:
        package = getattr(problem.__cause__, "name", None)
        if package is None or importlib.util.find_spec(package.partition(".")[0]) is not None:
            raise
        pytest.skip(str(problem))


@pytest.fixture
def with_short_stack() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs a function in a thread of its own, whose stack is empty, with the recursion limit at 200."""
    usual = sys.getrecursionlimit()

    def run(promise: Callable[[], None]) -> None:
        failures: list[BaseException] = []

        def guarded() -> None:
            try:
                promise()
            except BaseException as problem:  # noqa: BLE001 - it is raised again, in the thread of the test
                failures.append(problem)

        thread = threading.Thread(target=guarded)
        sys.setrecursionlimit(200)
        thread.start()
        thread.join()
        sys.setrecursionlimit(usual)
        if failures:
            raise failures[0]

    yield run
    sys.setrecursionlimit(usual)
