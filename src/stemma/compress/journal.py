"""What a run has paid for and how far its output has come, so that it can be killed at any moment and go on.

A file of JSON lines that lies beside the output while the run is unfinished:

    {"run": {…}}                                     what is being done; another run may not go on from here
    {"paid": [0, 7, "key"], "summary": {…}}          a summary for row 7 of file 0, on the disk before it is used
    {"rows": [[0, 6, [51200, 0], {…}], …]}           row 6 of file 0 is written, and the outputs are that long

Rows stand here after they stand in the output. Whoever goes on cuts the outputs back to the last row that both know,
and asks again for no summary that was paid. Only summaries of rows that are not written are kept in memory.
`tests/compress/test_resume.py` kills runs at many points.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import msgspec

from stemma.compress.errors import OutputThere
from stemma.compress.metrics import RowMetrics
from stemma.compress.plan import Turn
from stemma.compress.summary import Summarizer, Summary
from stemma.errors import NotWritten
from stemma.formats.jsonl import from_line, to_line
from stemma.formats.lines import numbered_lines

Place = tuple[int, int]
"""Which file, and which row of it."""


class Written(msgspec.Struct, frozen=True, array_like=True):
    """A row that stands in the output."""

    file: int
    row: int
    ends: list[int]
    """How long each output of the file is with it."""
    metrics: RowMetrics

    @property
    def place(self) -> Place:
        return self.file, self.row


class Journal:
    """The journal at `path`, locked for this process."""

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock()
            self._cut_torn_line()
            self._check(run)
        except BaseException:
            os.close(self._file)
            raise
        self._paid: dict[Place, dict[str, Summary]] = {}
        self._syncing = asyncio.Lock()
        self._paid_lines = self._synced_lines = 0

    def _lock(self) -> None:
        try:
            flock(self._file, LOCK_EX | LOCK_NB)
        except OSError:
            raise OutputThere(f"another process is writing with {self.path}; let it finish") from None

    def _cut_torn_line(self) -> None:
        """A last line without its newline was never acknowledged."""
        size = os.fstat(self._file).st_size
        if size:
            with mmap(self._file, size, access=ACCESS_READ) as content:
                whole = content.rfind(b"\n") + 1
            os.ftruncate(self._file, whole)

    def _check(self, run: dict[str, Any]) -> None:
        """An empty journal becomes that of `run`; any other must be."""
        first = next((line for _, line in numbered_lines(self.path)), None)
        if first is None:
            self._append({"run": run})
        elif from_line(first).get("run") != from_line(to_line(run)):
            raise OutputThere(
                f"{self.path} belongs to an unfinished run with other settings or sources; finish that with the same "
                "command, or delete the journal and the .partial files beside it"
            )

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, sizes: Mapping[int, Sequence[int]]) -> Iterator[Written]:
        """The rows that stand in outputs of these `sizes`, in order; what was paid for others is remembered."""
        lost: set[int] = set()
        for _, line in numbered_lines(self.path):
            record = from_line(line or b"{}")
            if "paid" in record:
                file, row, key = record["paid"]
                self._paid.setdefault((file, row), {})[key] = msgspec.convert(record["summary"], Summary)
            for found in msgspec.convert(record.get("rows", []), list[Written]):
                if any(end > size for end, size in zip(found.ends, sizes.get(found.file, ()), strict=True)):
                    lost.add(found.file)  # a power cut took the output's end: rows from here on are written again
                if found.file not in lost:
                    self._paid.pop(found.place, None)
                    yield found

    def paid(self, place: Place, key: str) -> Summary | None:
        """The summary that an earlier run has paid for."""
        return self._paid.get(place, {}).get(key)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────

    async def pay(self, place: Place, key: str, summary: Summary) -> None:
        """Keep a summary; on the disk when this returns, together with all that others wrote meanwhile."""
        self._append({"paid": [*place, key], "summary": msgspec.to_builtins(summary)})
        self._paid_lines += 1
        mine = self._paid_lines
        async with self._syncing:
            if self._synced_lines < mine:
                reached = self._paid_lines
                await asyncio.to_thread(os.fsync, self._file)
                self._synced_lines = reached

    def write(self, rows: Sequence[Written]) -> None:
        """Note rows that have just been written."""
        if rows:
            self._append({"rows": msgspec.to_builtins(rows)})
        for row in rows:
            self._paid.pop(row.place, None)

    def _append(self, record: dict[str, Any]) -> None:
        try:
            rest = memoryview(to_line(record))
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as problem:
            raise NotWritten(f"{self.path}: {problem.strerror}; make room and run the same command again") from problem

    def close(self) -> None:
        """Let go; the run can be taken up again."""
        os.close(self._file)

    def finish(self) -> None:
        """The run is done: nothing is left to take up."""
        self.path.unlink(missing_ok=True)
        self.close()


class Remembering:
    """A summarizer that asks for nothing twice: the summaries of one row, through the journal."""

    def __init__(self, summarizer: Summarizer, journal: Journal, place: Place) -> None:
        self.name = summarizer.name
        self._summarizer, self._journal, self._place = summarizer, journal, place

    async def summarise(self, turns: Sequence[Turn], tokens: int) -> Summary:
        key = sha256(msgspec.msgpack.encode([tokens, [_bytes(turn.text) for turn in turns]])).hexdigest()
        known = self._journal.paid(self._place, key)
        if known is not None:
            return known
        summary = await self._summarizer.summarise(turns, tokens)
        if summary.calls:  # what a model was asked for; anything else is as quickly made again
            await self._journal.pay(self._place, key, summary)
        return summary


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
