"""One record, one line: written whole or not at all.

`append` returns when the line is on the disk. It holds the file's lock, so several processes and threads may
append at once. If the disk refuses part-way, the file is cut back to what it was and `NotWritten` is raised.

A process killed in the middle of a write leaves a torn tail: a last line without a newline. The next `append`
mends it first, for otherwise its own line would be glued to the tail and both would be lost:

    …whole line⏎{"a": 1}          all of the record is there        → it gets its newline
    …whole line⏎{"a": "hal        a fragment, never acknowledged    → moved to `<file>.torn`, one a line

So the file holds whole lines only, and nothing is thrown away. `tests/formats/test_jsonl.py` cuts a line at
every byte, kills writers, lets two write at once and fills the disk.

The text is what `json.dumps(…, ensure_ascii=False)` gives, as valid UTF-8: a lone surrogate is written as its
`\\udXXX` escape. Two that stand side by side and make a pair come back as the character they encode; JSON cannot
tell the two apart. Not covered: file systems without `flock`, and files renamed while they are written.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import ELOOP
from fcntl import LOCK_EX, LOCK_UN, flock
from math import isfinite
from mmap import ACCESS_READ, mmap
from typing import IO, Any

import msgspec

from stemma.core.canonical import has_odd_number, plain
from stemma.errors import BadMessage, BadRecord, NotWritten

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_respace = msgspec.json.format
_BLOCK = 1 << 16


def to_line(record: Mapping[str, Any], where: str = "record") -> bytes:
    """The line for `record`, with its newline; `BadRecord` names the place in it that JSON cannot hold."""
    try:
        value = plain(record, where)
    except BadMessage as error:
        raise BadRecord(str(error)) from error
    return _spaced(value) + b"\n"


def to_json(value: Any) -> str:
    """What `json.dumps(value, ensure_ascii=False)` gives for a value that was read from JSON."""
    return _spaced(value, "surrogatepass").decode("utf-8", "surrogatepass")


def _spaced(value: Any, surrogates: str = "backslashreplace") -> bytes:
    if not has_odd_number(value):  # msgspec writes the same, several times as fast, save for what it refuses
        with suppress(UnicodeEncodeError, OverflowError):
            return _respace(_encode(value), indent=0)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", surrogates)


def from_line(line: bytes) -> dict[str, Any]:
    """The record that `line` holds, or `BadRecord`."""
    value = from_json(line)
    if type(value) is not dict:
        raise BadRecord(f"is of type {type(value).__name__}, not an object")
    return value


def from_json(text: bytes) -> Any:
    """Any JSON value; `BadRecord` for what is none, NaN and numbers that no float can hold among them."""
    try:
        return _decode(text)
    except RecursionError as error:
        raise BadRecord("is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _from_odd_json(text, error)


def check_keys(text: bytes) -> None:
    """`BadRecord` if an object in this JSON text has a key twice: readers differ in which of the two they take.

    >>> check_keys(b'{"a": 1, "b": {"c": 2, "c": 3}}')
    Traceback (most recent call last):
    stemma.errors.BadRecord: has the key 'c' twice in one object
    """
    try:
        json.loads(text.decode("utf-8", "surrogatepass"), object_pairs_hook=_once)
    except BadRecord:
        raise
    except (ValueError, RecursionError):
        return  # `from_json` says what is wrong with text that is not JSON


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise BadRecord(f"has the key {key!r} twice in one object")
            seen.add(key)


def _from_odd_json(text: bytes, refusal: Exception) -> Any:
    """The same by the standard library, which takes lone surrogates; if it refuses too, the first refusal is told."""
    try:
        return json.loads(text.decode("utf-8", "surrogatepass"), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise BadRecord(f"is not JSON: {refusal}") from refusal


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is no JSON number")
    return number


def append(path: str | os.PathLike[str], record: Mapping[str, Any], *, follow: bool = True) -> None:
    """Add `record` as the last line of `path`, which is made if it is not there.

    follow: False if `path` may not be a symbolic link, as where somebody else can write in its folder
    """
    line = to_line(record)
    try:
        with _locked(path, follow=follow) as file:
            _mend(file, path)
            _write(file, line, path)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == ELOOP else error.strerror or str(error)
        raise NotWritten(
            f"{os.fspath(path)}: {reason}; the record was not added, put that right and save again"
        ) from error


def remove(path: str | os.PathLike[str], line: bytes) -> None:
    """Take out the last line that is `line`, if it is there; the file is replaced whole."""
    try:
        with _locked(path) as file:
            at = _find_line(file, line)
            if at is not None:
                _copy_without(file, at, len(line), path)
    except OSError as error:
        raise NotWritten(f"{os.fspath(path)}: {error.strerror or error}; the file is as it was") from error


def _find_line(file: int, line: bytes) -> int | None:
    size = os.fstat(file).st_size
    if not size:
        return None
    with mmap(file, size, access=ACCESS_READ) as content:
        at = content.rfind(b"\n" + line)
        return at + 1 if at >= 0 else 0 if content[: len(line)] == line else None


def _copy_without(file: int, at: int, length: int, path: str | os.PathLike[str]) -> None:
    partial = f"{os.fspath(path)}.partial"
    with suppress(FileNotFoundError):
        os.unlink(partial)  # what a crash has left, or a link that leads elsewhere
    with open(partial, "xb") as copy, open(os.dup(file), "rb") as original:
        original.seek(0)
        _copy_bytes(original, copy, at)
        original.seek(at + length)
        shutil.copyfileobj(original, copy)
        copy.flush()
        os.fsync(copy.fileno())
    os.replace(partial, path)
    _sync_folder(path)


def _copy_bytes(original: IO[bytes], copy: IO[bytes], count: int) -> None:
    while count > 0 and (block := original.read(min(count, _BLOCK))):
        copy.write(block)
        count -= len(block)


@contextmanager
def _locked(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[int]:
    file = _open_locked(path, follow=follow)
    try:
        try:
            yield file
        finally:  # said aloud: a child forked meanwhile has a copy of the file, so closing ours frees nothing
            flock(file, LOCK_UN)
    finally:
        os.close(file)


def _open_locked(path: str | os.PathLike[str], *, follow: bool) -> int:
    """The file at `path`, locked; not one that `remove` replaced while we waited for the lock."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    while True:
        file = os.open(path, flags, 0o666)
        flock(file, LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        os.close(file)


def _write(file: int, content: bytes, path: str | os.PathLike[str]) -> None:
    """All of `content` at the end of `file` and on the disk, or the file as it was."""
    size = os.fstat(file).st_size
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
        if size == 0:
            _sync_folder(path)
    except BaseException:  # an interrupt, too, must not leave half a line
        with suppress(OSError):  # should this fail as well, the next append mends the tail
            os.ftruncate(file, size)
        raise


def _sync_folder(path: str | os.PathLike[str]) -> None:
    """A new file's name is on the disk only when its folder is."""
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _mend(file: int, path: str | os.PathLike[str]) -> None:
    """Leave whole lines only; the caller holds the lock."""
    end = os.fstat(file).st_size
    start = _last_line(file, end)
    if start == end:
        return
    tail = os.pread(file, end - start, start)
    if _is_whole(tail):
        _write(file, b"\n", path)
    else:
        _set_aside(tail, path)
        os.ftruncate(file, start)  # only now: killed in between, the fragment is kept twice rather than lost


def _last_line(file: int, end: int) -> int:
    """Where the text after the last newline begins."""
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _is_whole(tail: bytes) -> bool:
    """A torn record is never an object: its last byte is the closing brace."""
    try:
        from_line(tail)
    except BadRecord:
        return False
    return True


def _set_aside(fragment: bytes, path: str | os.PathLike[str]) -> None:
    torn = f"{os.fspath(path)}.torn"
    file = os.open(torn, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        _write(file, fragment + b"\n", torn)
    finally:
        os.close(file)
