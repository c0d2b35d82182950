"""Search files for a regular expression: a program of its own, which needs nothing but the standard library.

`stemma.tools.searching` starts it with a folder open and a request on standard input, and ends it when its time is up.
Each line that matches is a line of JSON on standard output, `[path, number, text]`; a sentence there says why the
search could not be made, and `{"errno": N}` that this machine has nothing left for it. No link is followed, and no file
is held in memory.
"""

import errno
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Container, Iterator
from fnmatch import fnmatchcase

_PIECE = 1 << 20
"""A line longer than this is searched in pieces."""


def main() -> None:
    """Do what the request says."""
    request = json.load(sys.stdin)
    memory = request["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        wanted = re.compile(request["pattern"])
    except (re.error, RecursionError, OverflowError, MemoryError) as problem:
        _say(f"{request['pattern']!r} is no regular expression: {problem or 'it is too large'}")
        return
    found = 0
    try:
        for path, file in files_below(request["folder"], request["prefix"], request["glob"], request["exhausted"]):
            for number, text in _matching(file, wanted, request["most_bytes"]):
                _say([path, number, text[: request["longest_line"]]])
                found += 1
                if found == request["most_matches"]:
                    return
    except MemoryError:
        _say("the search needs too much memory; try a simpler pattern")
    except (RecursionError, OSError) as problem:
        failed = problem.errno if isinstance(problem, OSError) else None
        if failed in request["exhausted"] and failed != errno.EMFILE:  # this process opens many only in deep folders
            _say({"errno": failed})
        else:
            _say(f"the search could not go on: {problem}; search a folder further below")


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def files_below(folder: int, prefix: str, glob: str, exhausted: Container[int] = ()) -> Iterator[tuple[str, int]]:
    """The plain files below an open folder whose name fits, in order of name: the path of each, and it, open.

    What cannot be opened is passed over, but not if that is an error in `exhausted`.
    """

    def pass_over(problem: OSError) -> None:
        if problem.errno in exhausted:
            raise problem

    for here, folders, files, inner in os.fwalk(dir_fd=folder, follow_symlinks=False, onerror=pass_over):
        folders.sort()
        for name in sorted(files):
            path = os.path.normpath(os.path.join(prefix, here, name))
            if fnmatchcase(name, glob) or fnmatchcase(path, glob):
                try:
                    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inner)
                except OSError as problem:  # a link, not ours to read, or gone since it was listed
                    pass_over(problem)
                    continue
                try:
                    if stat.S_ISREG(os.fstat(file).st_mode):
                        yield path, file
                finally:
                    os.close(file)


def _matching(file: int, wanted: "re.Pattern[str]", most_bytes: int) -> Iterator[tuple[int, str]]:
    """Number and text of each line that matches; none of a file that is too large, or that is not text."""
    if os.fstat(file).st_size > most_bytes or b"\0" in os.pread(file, 8192, 0):
        return
    with open(file, "rb", closefd=False) as lines:
        number, told = 1, 0
        while line := lines.readline(_PIECE):
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
            if number != told and wanted.search(text):
                told = number
                yield number, text
            number += line.endswith(b"\n")


if __name__ == "__main__":
    main()
