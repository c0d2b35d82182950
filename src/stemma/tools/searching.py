"""Searching the files of a workspace for a model's own pattern, within a time.

Some patterns take longer than the world lasts (`(a+)+$`), and while Python matches it does nothing else: one such
pattern would stop every conversation of this process. So folders are listed, files read and lines matched by
`search_program.py` in a process of its own, which is ended when its time is up; this process reads its findings, no
more than are shown. `tests/tools/test_searching.py` proves it.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import WeakKeyDictionary

from stemma.redact import NOTHING_SECRET, Redactor
from stemma.tools import rooted
from stemma.tools.failures import EXHAUSTED
from stemma.tools.tool import ToolError

SECONDS = 20.0
"""How long one search may take."""
_MEMORY = 1 << 30
_MOST_MATCHES = 200
_LONGEST_LINE = 2000
_PROGRAM = str(Path(__file__).with_name("search_program.py"))
_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()
"""How many searches an event loop may run at once: each of them keeps a processor busy."""


async def search(
    root: Path, path: str, pattern: str, glob: str, seconds: float = SECONDS, redactor: Redactor = NOTHING_SECRET
) -> str:
    """The lines below the folder `path` that match, as `path:line:text`, or `ToolError`; the lines without secrets."""
    turns = _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(os.cpu_count() or 1))
    async with turns:
        parts = rooted.parts_of(path, root)
        folder = await asyncio.to_thread(rooted.open_folder, root, parts)
        try:
            request = {
                "folder": folder,
                "prefix": str(PurePosixPath(*parts)),
                "pattern": pattern,
                "glob": glob,
                "most_bytes": rooted.MAX_BYTES,
                "most_matches": _MOST_MATCHES + 1,
                "longest_line": 2 * _LONGEST_LINE,  # cut to half of that when secrets are gone
                "memory": _MEMORY,
                "exhausted": sorted(EXHAUSTED),
            }
            return _shown(await _run(request, seconds), redactor)
        finally:
            os.close(folder)


async def _run(request: dict[str, Any], seconds: float) -> list[Any]:
    """What the program said: matches, and perhaps a sentence about what kept it from all of them."""
    program = [sys.executable, "-I", "-S", _PROGRAM]
    process = await asyncio.create_subprocess_exec(
        *program, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, pass_fds=[request["folder"]], limit=1 << 20
    )
    assert process.stdin is not None
    assert process.stdout is not None
    found: list[Any] = []
    try:
        async with asyncio.timeout(seconds):
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
            while line := await process.stdout.readline():
                found.append(json.loads(line))
            if await process.wait() != 0:
                found.append("the search broke off; try a simpler pattern")
    except TimeoutError:
        found.append(f"the search took longer than {seconds:g} seconds; try a simpler pattern or a smaller folder")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # its end is seen only when all it wrote was read
    return found


def _shown(found: list[Any], redactor: Redactor) -> str:
    for number in (one["errno"] for one in found if isinstance(one, dict)):
        raise OSError(number, os.strerror(number))
    matches = [
        f"{path}:{number}:{redactor.start(text, _LONGEST_LINE)}"
        for path, number, text in (one for one in found if isinstance(one, list))
    ]
    complaint = next((one for one in found if isinstance(one, str)), None)
    if complaint and not matches:
        raise ToolError(complaint)
    if len(matches) > _MOST_MATCHES:
        return "\n".join([*matches[:_MOST_MATCHES], "… more matches; search for something narrower"])
    return "\n".join([*matches, f"… {complaint}"] if complaint else matches) or "no matches"
