"""The file tools: read, write, patch and search, all within the conversation's own folder.

`tests/tools/test_rooted.py` and `tests/tools/test_escapes.py` prove it.
"""

import difflib

from stemma.tools.matching import Matcher
from stemma.tools.rooted import read_bytes, walk, write_bytes
from stemma.tools.tool import Tool, ToolError, as_tool
from stemma.tools.workspace import Workspace

_MOST_LINES = 2000
_MOST_MATCHES = 200
_LONGEST_LINE = 2000


def read_file(path: str, here: Workspace, offset: int = 1, limit: int = _MOST_LINES) -> str:
    """Read a text file. Lines are numbered from 1.

    path: the file, relative to the workspace
    offset: the first line to show
    limit: how many lines to show at most
    """
    lines = _decoded(read_bytes(here.root, path)).splitlines()
    first = max(offset, 1)
    shown = lines[first - 1 : first - 1 + max(limit, 1)]
    numbered = [f"{n}\t{_cut(line, here)}" for n, line in enumerate(shown, first)]
    rest = len(lines) - (first - 1) - len(shown)
    if rest > 0:
        numbered.append(f"… {rest} more lines; read on with offset={first + len(shown)}")
    return "\n".join(numbered)


def write_file(path: str, content: str, here: Workspace) -> str:
    """Write a text file, replacing what was there; folders are made as needed.

    path: the file, relative to the workspace
    content: the whole new content
    """
    body = _encoded(content)
    write_bytes(here.root, path, body, here.protected)
    return f"wrote {len(body)} bytes to {path}"


def patch(path: str, old: str, new: str, here: Workspace, replace_all: bool = False) -> str:
    """Replace a piece of text in a file. The old text must stand there exactly, and once unless replace_all is true.

    path: the file, relative to the workspace
    old: the text to replace, with enough around it to be unique
    new: the text to put in its place
    replace_all: replace every occurrence
    """
    # In bytes: what is not text stays as it was.
    content, sought, put = read_bytes(here.root, path), _encoded(old), _encoded(new)
    found = content.count(sought) if sought else 0
    if not found:
        raise ToolError(f"the old text does not stand in {path}{_nearest(_decoded(content), old)}")
    if found > 1 and not replace_all:
        raise ToolError(f"the old text stands {found} times in {path}; give more of it, or set replace_all")
    write_bytes(here.root, path, content.replace(sought, put), here.protected)
    return f"replaced {found} occurrence{'s' if found > 1 else ''} in {path}"


def search_files(pattern: str, here: Workspace, path: str = ".", glob: str = "*") -> str:
    """Search text files for a regular expression. Gives matching lines as path:line:text.

    pattern: a regular expression
    path: the folder to search, relative to the workspace
    glob: only files whose name fits, such as *.py
    """
    matches: list[str] = []
    with Matcher(pattern) as matcher:
        for file in walk(here.root, path):
            if _fits(file, glob):
                matches += _matches(here, file, matcher)
            if len(matches) > _MOST_MATCHES:
                return "\n".join([*matches[:_MOST_MATCHES], "… more matches; search for something narrower"])
    return "\n".join(matches) or "no matches"


def _fits(file: str, glob: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(file.rpartition("/")[2], glob) or fnmatchcase(file, glob)


def _matches(here: Workspace, file: str, matcher: Matcher) -> list[str]:
    try:
        content = read_bytes(here.root, file)
    except ToolError:  # too large, not ours to read, or gone since it was listed
        return []
    if b"\0" in content[:8192]:
        return []
    text = _decoded(content)
    lines = text.splitlines()
    return [f"{file}:{n}:{_cut(lines[n - 1], here)}" for n in matcher.lines(text)]


def _cut(line: str, here: Workspace) -> str:
    """The start of a line; secrets go before it is cut, as half of one would not be recognised later."""
    return line if len(line) <= _LONGEST_LINE else here.redactor.start(line[: 2 * _LONGEST_LINE], _LONGEST_LINE)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _nearest(text: str, old: str) -> str:
    """The line that looks most like what was sought: a model mends its next try by it."""
    first = next((line for line in old.splitlines() if line.strip()), "")
    near = difflib.get_close_matches(first, text.splitlines()[:5000], n=1)
    return f"; the nearest line is {near[0]!r}" if near else ""


_QUICK = (read_file, write_file, patch)
"""Files are bounded, and a local one is read before a thread has woken up."""

TOOLS: tuple[Tool, ...] = (
    *(as_tool(function, toolset="file", quick=True) for function in _QUICK),
    as_tool(search_files, toolset="file"),
)
