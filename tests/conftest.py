"""What all tests share: how hypothesis runs, and a thread whose stack is short."""

import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)  # the same examples in every run
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


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
