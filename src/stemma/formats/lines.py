"""The lines of a file, plain or compressed, in constant memory.

`numbered_lines` reads `.gz` and `.zst` by their names and everything else as it is. A compressed file that is cut
off or damaged is an error, never a shorter file. A line beyond `MAX_LINE` is told the moment it is passed, so a
few kilobytes that unpack to terabytes cost no more memory than that. `tests/formats/test_files.py` tries each.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from stemma.errors import BadRecord, MissingExtra

MAX_LINE = 256 << 20
"""The longest line that is read, in bytes: far beyond any trajectory, and still within memory."""

_CHUNK = 1 << 20
_ZSTD_CHUNK = 1 << 10
"""Four bytes of zstd may unpack to a block of 128 KiB, so this much unpacks to 32 MiB at the most."""

_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def numbered_lines(file: Path) -> Iterator[tuple[int, bytes | None]]:
    """Each line with its number from 1, without its newline; None stands for a line that is too long."""
    number = 0
    try:
        for number, line in enumerate(split_lines(_chunks(file)), start=1):
            yield number, line.removeprefix(b"\xef\xbb\xbf") if line and number == 1 else line
    except _DAMAGED as error:
        raise BadRecord(f"the compressed file is cut off or damaged: {error}", str(file), number + 1) from error


def split_lines(chunks: Iterable[bytes], longest: int = MAX_LINE) -> Iterator[bytes | None]:
    r"""The lines that `chunks` make together; None for one that is longer than `longest` when a chunk ends.

    >>> list(split_lines([b"ab\nc", b"d\n", b"12345", b"6789\ne"], longest=4))
    [b'ab', b'cd', None, b'e']
    """
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        *ended, tail = chunk.split(b"\n")
        for piece in ended:
            if size <= longest:
                yield b"".join((*held, piece))
            held, size = [], 0
        before, size = size, size + len(tail)
        if size <= longest:
            held.append(tail)
        elif before <= longest:  # once, and at once: a reader who stops here unpacks nothing more
            held.clear()
            yield None
    if 0 < size <= longest:
        yield b"".join(held)


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        if file.suffix == ".zst":
            yield from _unzstd(source, file.name)
        elif file.suffix == ".gz":
            with gzip.GzipFile(fileobj=source) as unpacked:
                # read1 gives what there is: of a file that is cut off, all up to the cut.
                yield from iter(lambda: unpacked.read1(_CHUNK), b"")
        else:
            yield from iter(lambda: source.read(_CHUNK), b"")


def _unzstd(source: IO[bytes], name: str) -> Iterator[bytes]:
    """Frame by frame, because the library's own reader takes a frame that is cut off for the end of the file."""
    try:
        from zstandard import ZstdDecompressor, ZstdError
    except ImportError as error:
        raise MissingExtra(f"{name}: reading .zst files needs zstandard: pip install 'stemmata[zstd]'") from error
    frame = None
    packed = source.read(_ZSTD_CHUNK)
    try:
        while packed:
            frame = frame or ZstdDecompressor().decompressobj()
            yield frame.decompress(packed)
            packed, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
            packed = packed or source.read(_ZSTD_CHUNK)
    except ZstdError as error:
        raise EOFError(str(error)) from error
    if frame is not None:
        raise EOFError("it ends in the middle of a frame")
