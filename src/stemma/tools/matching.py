"""Lines that match a model's own pattern, found within a time.

Some patterns take longer than the world lasts (`(a+)+$`), and while Python matches it does nothing else: one such
pattern would stop every conversation of this process. So the matching is done in a process of its own, which is ended
when its time is up. `tests/tools/test_matching.py` proves it.
"""

import json
import re
import subprocess
import sys
from threading import Timer
from typing import Self

from stemma.tools.tool import ToolError

SECONDS = 20.0
"""How long all matching of one search may take."""

_MATCHER = """
import json, re, sys
wanted = re.compile(json.loads(sys.stdin.readline()))
for line in sys.stdin:
    lines = json.loads(line).splitlines()
    print(json.dumps([n for n, text in enumerate(lines, 1) if wanted.search(text)]), flush=True)
"""


class Matcher:
    """A pattern at work."""

    def __init__(self, pattern: str, seconds: float = SECONDS) -> None:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as problem:
            raise ToolError(f"{pattern!r} is no regular expression: {problem}") from problem
        self._pattern, self._seconds = pattern, seconds

    def __enter__(self) -> Self:
        program = [sys.executable, "-I", "-S", "-c", _MATCHER]
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._timer = Timer(self._seconds, self._process.kill)
        self._timer.start()
        self._tell(self._pattern)
        return self

    def __exit__(self, *exc: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()

    def lines(self, text: str) -> list[int]:
        """The numbers of the lines that match, from 1."""
        assert self._process.stdout is not None
        self._tell(text)
        told = self._process.stdout.readline()
        if not told:
            raise ToolError(f"the search took longer than {self._seconds:g} seconds; try a simpler pattern")
        numbers: list[int] = json.loads(told)
        return numbers

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # its time was up; `lines` says so
            return
