"""The file tools: read, write, patch and search, all within the conversation's own folder.

They work in threads, block by block: the memory they take does not grow with the file, and no step is so long that
other conversations notice. A line ends with a newline, as compilers and `grep` count lines.
`tests/tools/test_rooted.py`, `tests/tools/test_escapes.py` and `tests/tools/test_heartbeat.py` prove it.
"""

import difflib
from collections.abc import Iterator

from stemma.redact import Redactor
from stemma.tools import rooted
from stemma.tools.searching import search
from stemma.tools.tool import Tool, ToolError, as_tool
from stemma.tools.workspace import Workspace

_MOST_LINES = 2000
_LONGEST_LINE = 2000
_MOST_CHARS = 1 << 18
"""How much text one reading shows; there is always a next one."""
_LONGEST_OLD = 1 << 18
"""How many bytes the text may have that a patch replaces."""


def read_file(path: str, here: Workspace, offset: int = 1, limit: int = _MOST_LINES) -> str:
    """Read a text file. Lines are numbered from 1.

    path: the file, relative to the workspace
    offset: the first line to show
    limit: how many lines to show, at most 2000
    """
    first = max(offset, 1)
    with rooted.reading(here.root, path) as file:
        found, total = excerpt(rooted.blocks(file, path), first, min(max(limit, 1), _MOST_LINES))
    shown: list[str] = []
    room = _MOST_CHARS
    for number, line in enumerate(found, first):
        room -= len(text := _shown(line, here.redactor))
        if shown and room < 0:
            break
        shown.append(f"{number}\t{text}")
    rest = total - (first - 1) - len(shown)
    if rest > 0:
        shown.append(f"… {rest} more lines; read on with offset={total - rest + 1}")
    return "\n".join(shown)


def excerpt(blocks: Iterator[bytes], first: int, most: int) -> tuple[list[bytearray], int]:
    """The beginnings of up to `most` lines from number `first` on, and how many lines there are in all."""
    found: list[bytearray] = []
    ended, block = 0, b"\n"
    for block in blocks:
        newlines = block.count(b"\n")
        if ended + newlines + 1 >= first and ended + 1 < first + most:
            for number, piece in enumerate(block.split(b"\n"), ended + 1):
                if first <= number < first + most:
                    if number - first == len(found):
                        found.append(bytearray())
                    line = found[number - first]
                    line += piece[: 4 * _LONGEST_LINE + 4 - len(line)]  # a character has at most four bytes
        ended += newlines
    total = ended if block.endswith(b"\n") else ended + 1
    return found[: max(total - first + 1, 0)], total


def _shown(line: bytearray, redactor: Redactor) -> str:
    """A line, or its start; secrets go before it is cut, as half of one would not be recognised later."""
    text = line.removesuffix(b"\r").decode("utf-8", "replace")
    return text if len(text) <= _LONGEST_LINE else f"{redactor.start(text, _LONGEST_LINE)}… [the line goes on]"


def write_file(path: str, content: str, here: Workspace) -> str:
    """Write a text file, replacing what was there; folders are made as needed.

    path: the file, relative to the workspace
    content: the whole new content
    """
    body = _encoded(content)
    if len(body) > rooted.MAX_BYTES:
        raise rooted.too_large(path)
    with rooted.replacing(here.root, path, here.protected) as target:
        target.write(body)
    return f"wrote {len(body)} bytes to {path}"


def patch(path: str, old: str, new: str, here: Workspace, replace_all: bool = False) -> str:
    """Replace a piece of text in a file. The old text must stand there exactly, and once unless replace_all is true.

    path: the file, relative to the workspace
    old: the text to replace, with enough around it to be unique
    new: the text to put in its place
    replace_all: replace every occurrence
    """
    sought, put = _encoded(old), _encoded(new)  # in bytes: what is not text stays as it was
    if not sought:
        raise ToolError("the old text is empty; give the text to replace, or use write_file")
    if len(sought) > _LONGEST_OLD:
        raise ToolError(f"the old text is longer than {_LONGEST_OLD >> 10} KB; give less of it, or use write_file")
    found = size = 0
    beginning = b""
    with rooted.reading(here.root, path) as file, rooted.replacing(here.root, path, here.protected) as target:
        content = rooted.blocks(file, path, max(len(sought), rooted.BLOCK))
        for pieces in _apart(content, sought):
            found += len(pieces) - 1
            size += sum(map(len, pieces)) + len(put) * (len(pieces) - 1)
            if size > rooted.MAX_BYTES and (replace_all or found == 1):
                raise rooted.too_large(path)
            if not found:
                beginning = (beginning + pieces[0])[:_MOST_CHARS]
            if replace_all or found < 2:
                target.write(put.join(pieces))
        if not found:
            raise ToolError(f"the old text does not stand in {path}{_nearest(beginning, old, here.redactor)}")
        if found > 1 and not replace_all:
            raise ToolError(f"the old text stands {found} times in {path}; give more of it, or set replace_all")
    return f"replaced {found} occurrence{'s' if found > 1 else ''} in {path}"


def _apart(blocks: Iterator[bytes], sought: bytes) -> Iterator[list[bytes]]:
    """A stream, step by step, each step split where `sought` stands: together what `bytes.split` would find."""
    held = b""
    for block in blocks:
        *before, rest = (held + block).split(sought)
        settled = max(len(rest) - len(sought) + 1, 0)  # one more may begin in what is held back
        held = rest[settled:]
        yield [*before, rest[:settled]]
    yield [held]


_MOST_LOOKED_AT = 5000
_MOST_COMPARED = 200
_COMPARED_CHARS = 120


def _nearest(content: bytes, old: str, redactor: Redactor) -> str:
    """The line that looks most like what was sought: a model mends its next try by it.

    Comparing takes time that grows with the square of a line, so only beginnings of lines are compared, and only so
    many of those that have the same letters.
    """
    first = next((line for line in old[:_MOST_CHARS].splitlines() if line.strip()), "")[:_COMPARED_CHARS]
    near, best, compared = "", 0.6, 0
    matcher = difflib.SequenceMatcher(None, b=first)
    text = redactor.stream().feed(content.decode("utf-8", "replace"))  # what is cut off may be the rest of a secret
    for line in text.split("\n")[:_MOST_LOOKED_AT]:
        matcher.set_seq1(line[:_COMPARED_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            compared += 1
            if (ratio := matcher.ratio()) > best:
                near, best = line[:_LONGEST_LINE], ratio
        if compared == _MOST_COMPARED:
            break
    return f"; the nearest line is {near!r}" if near else ""


async def search_files(pattern: str, here: Workspace, path: str = ".", glob: str = "*") -> str:
    """Search text files for a regular expression. Gives matching lines as path:line:text.

    pattern: a regular expression
    path: the folder to search, relative to the workspace
    glob: only files whose name fits, such as *.py
    """
    return await search(here.root, path, pattern, glob, redactor=here.redactor)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


TOOLS: tuple[Tool, ...] = tuple(
    as_tool(function, toolset="file") for function in (read_file, write_file, patch, search_files)
)
