"""Writing rows for a trainer, one after another, with an account of every reply.

    train.jsonl or train.parquet   the rows
    receipts.jsonl                 what was recorded; for each reply the row that trains it, or why none does
    manifest.json                  the root of the receipts, the hash of the data, counts
    report.json                    the same for people, with examples

A file appears under its final name only when it is whole. Each sampled reply is trained in exactly one row or counted
under the reason why not, with one example of each. What makes one message unfit for a format costs the replies after
it, not those before it. A reply that is not trained stays as context where the format can say so. Every row names its
conversation, its model, how its last reply ended, and whether the model saw exactly this context:

    id · model · finish_reason · on_policy · off_policy (why not; empty if it is) · metadata (`entry_metadata` reads it)

The same rows give the same bytes. `tests/formats/test_export.py` proves it; `tests/trainers/` loads the files with the
trainers' own code.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import file_digest
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import msgspec

from stemma.core.call import encode_tools
from stemma.core.canonical import encode
from stemma.core.message import RAW_TURN, REASONING_FIELDS
from stemma.errors import BadMessage, BadName, BadRecord, BadTrajectory, NotWritten, StemmaError
from stemma.formats.api import join_reasoning, structured_reasoning
from stemma.formats.entries import Columns, shaped_metadata
from stemma.formats.hermes import has_raw_turn
from stemma.formats.jsonl import to_line
from stemma.formats.markers import Finding, may_hold_markers
from stemma.formats.shapes import MEDIA_FIELDS, broken_arguments, missing_arguments, why_untrainable
from stemma.formats.text_receipts import TextManifest, TextReceipts
from stemma.formats.training import Excluded, LeftOut, TrainingRow, excluded

RECEIPTS, MANIFEST = "receipts.jsonl", "manifest.json"

_TEXT_PARTS = ("text", "input_text", "output_text")
_LOOKS_LIKE_A_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T][\d:Z+-]*)?")
_REASONING = frozenset(REASONING_FIELDS)
_BROKEN = "arguments are not an object"
_BROKEN_WRITTEN = "broken arguments written as {}"


class Written(NamedTuple):
    """A record for a trainer: all of a row, or the part of it that one record can say."""

    record: dict[str, Any]
    trained: tuple[int, ...]
    """Which messages of the row it trains."""
    differs: tuple[str, ...] = ()
    """How its context differs from what the model saw, because the format has it so."""
    scanned: Any = None
    """What is looked through for control markers, if not the record: the same with its structure still to be seen."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """What a trainer wants: how a row looks, and what lies beside the data."""

    name: str
    convert: Callable[[TrainingRow], list[Written]]
    """The row as that trainer loads it (several records, if it must be split), or `LeftOut`."""
    markers: Callable[[Any], list[Finding]]
    """The control markers in a record (or in `Written.scanned`), where that trainer would take them for structure."""
    sidecars: Callable[[str], dict[str, str]] = lambda data_file: {}
    """Files to write beside the data, by name, given the data file's name."""
    suffix: str = ".jsonl"
    needs_unicode: bool = True
    """Whether its reader refuses lone surrogates (Arrow does), so that such a row must stay out."""
    open_sink: "Callable[[IO[bytes]], TextSink] | None" = None
    """How rows are written, if not one JSON object a line."""
    parses_arguments: bool = True
    """Whether arguments that are not a JSON object cannot be written as they were sampled."""
    any_context: bool = False
    """Whether messages that are not text are written as they were recorded."""
    style: str | None = None
    """The dialect of trajectories that it writes, in which a turn that was read from a file is written as it was."""


class Sink(Protocol):
    """Where converted rows go."""

    def write(self, row: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class TextSink(Protocol):
    """Where rows of text go."""

    def write(self, row: Mapping[str, Any]) -> bytes:
        """Write a row; returns the bytes that stand for it in the receipts."""
        ...

    def close(self) -> None: ...


class Reasons(msgspec.Struct):
    """How often a reason was met, and the first row it was met at."""

    replies: int = 0
    rows: int = 0
    """Rows that lost a reply to it; a line of a file that could not be read is a row without replies."""
    example: str = ""
    detail: str = ""


class Report(msgspec.Struct):
    """The account of an export."""

    preset: str
    file: str = ""
    written: int = 0
    """Rows."""
    replies: int = 0
    """All that were sampled: those trained and those left out."""
    trained_messages: int = 0
    off_policy: int = 0
    """Rows written whose replies were sampled in another context than the row has."""
    off_policy_reasons: Counter[str] = msgspec.field(default_factory=Counter)
    left_out: dict[str, Reasons] = msgspec.field(default_factory=dict)
    tokens: int | None = None
    """Tokens in all rows written, if a tokenizer was given."""
    template: "dict[str, int] | None" = None
    """What the chat template of that tokenizer does to the rows, if it has one."""
    sample: dict[str, Any] | None = None
    """The first row, as written."""
    sidecars: list[str] = msgspec.field(default_factory=list)
    root: str = ""

    def leave_out(self, reason: str, example: str, detail: str, replies: int, rows: int) -> None:
        """Count what is not written."""
        met = self.left_out.setdefault(reason, Reasons(example=example, detail=detail))
        met.replies += replies
        met.rows += rows
        self.replies += replies


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What may be written that is otherwise left out."""

    allow_markers: bool = False
    keep_broken_calls: bool = False


class Inspector(Protocol):
    """Looks at every row with a model's own tokenizer and chat template."""

    def refuse(self, record: Mapping[str, Any]) -> None:
        """Raise `LeftOut` for a record that is too long."""
        ...

    def count(self, record: Mapping[str, Any]) -> int:
        """How many tokens it has; what the template does to it is noted."""
        ...

    @property
    def found(self) -> dict[str, int] | None:
        """What the template did to all rows counted so far."""
        ...


def export(
    rows: Iterable[TrainingRow | Excluded | BadRecord],
    preset: Preset,
    out: Path,
    *,
    options: Options | None = None,
    inspector: Inspector | None = None,
    version: str = "",
) -> Report:
    """Write `rows` for a trainer into `out` (a folder, or the data file itself)."""
    data = data_file(out, preset.name, preset.suffix)
    check_folder(data, preset.name)
    data.parent.mkdir(parents=True, exist_ok=True)
    opened = preset.open_sink or Lines
    with Whole(data) as file, Whole(data.with_name(RECEIPTS)) as receipts, closing(opened(file)) as sink:
        exporting = _Exporting(preset, data, options or Options(), sink, TextReceipts(receipts), inspector)
        for row in rows:
            exporting.take(row)
        report = exporting.finished()
    for name, text in preset.sidecars(data.name).items():
        _write_beside(data, name, text, report)
    _write_manifest(data, report, version)
    told = json.dumps(msgspec.to_builtins(report), ensure_ascii=False, indent=2)
    write_whole(data.with_name("report.json"), told.encode("utf-8", "backslashreplace"))
    return report


def data_file(out: Path, preset: str, suffix: str) -> Path:
    """The file to write: `out`, or `train` in the folder `out`."""
    if out.suffix not in (".jsonl", ".parquet"):
        return out / f"train{suffix}"
    if out.suffix != suffix:
        raise BadName(f"{preset} writes {suffix} files; name the output {out.with_suffix(suffix)}")
    return out


def check_folder(data: Path, preset: str) -> None:
    """`BadName` if the folder holds another export: its receipts would be replaced, and its sidecars left behind."""
    try:
        there = msgspec.json.decode(data.with_name(MANIFEST).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return
    if (there.get("file"), there.get("preset")) != (data.name, preset):
        about = f"{there.get('file')}, written for {there.get('preset')}"
        raise BadName(f"{data.parent} holds another export ({about}); write to another folder, or remove it")


class _Exporting:
    """An export under way."""

    def __init__(
        self,
        preset: Preset,
        data: Path,
        options: Options,
        sink: TextSink,
        receipts: TextReceipts,
        inspector: Inspector | None,
    ) -> None:
        self.preset, self.options, self.sink, self.receipts = preset, options, sink, receipts
        self.inspector = inspector
        self.tools: tuple[Any, bool] = (None, False)
        """The tools looked at last, and whether they may hold control markers."""
        self.metadata: tuple[Any, dict[str, Any]] = (None, {})
        """The metadata written last, and how: rows of one conversation share it."""
        self.report = Report(preset=preset.name, file=str(data), tokens=None if inspector is None else 0)

    def take(self, row: TrainingRow | Excluded | BadRecord) -> None:
        """Write a row, or note why not."""
        if isinstance(row, BadRecord):
            self.report.leave_out("unreadable", row.file or "", row.problem, replies=0, rows=1)
        elif isinstance(row, Excluded):
            self.exclude([row])
        elif not row.trained:
            self.report.leave_out("nothing to train", row.id, "no message of it was sampled by a model", 0, 1)
        else:
            self.write(self.trainable(row))

    def trainable(self, row: TrainingRow) -> TrainingRow:
        """The row without replies that cannot be trained as text; they stay in it as context."""
        kept, lost = [], []
        for number, reply in enumerate(row.replies):
            if why := self.why_not(row.messages[reply.at]):
                lost.append(excluded(row, reply, *why))
            else:
                kept.append(number)
        self.exclude(lost, rows=1)
        return row.cut(kept) if lost else row

    def why_not(self, message: Mapping[str, Any]) -> tuple[str, str] | None:
        if message.get("role") != "assistant":
            return "trained message of another role", f"its role is {message.get('role')!r}"
        if self.is_raw(message):
            return None
        if why := why_untrainable(message) or self.unspoken(message):
            return why
        broken = self.broken(message)
        return (_BROKEN, broken) if broken else None

    def unspoken(self, message: Mapping[str, Any]) -> tuple[str, str] | None:
        """Why a trajectory would not have all reasoning of a reply: it takes the first field that holds some."""
        reasoning = message.get("reasoning")
        if self.preset.style is None or not isinstance(reasoning, str) or not reasoning.strip():
            return None
        if len(message.keys() & _REASONING) < 2 or join_reasoning(structured_reasoning(message)) == reasoning:
            return None
        return "reasoning in two fields", "they differ, and a trajectory has the first only"

    def is_raw(self, message: Mapping[str, Any]) -> bool:
        """Whether a message is written as the turn that it was read from, whatever its shape."""
        style = self.preset.style
        return style is not None and RAW_TURN in message and has_raw_turn(dict(message), style)

    def broken(self, message: Mapping[str, Any]) -> str | None:
        """The tool call of a message that this format cannot write as it was; None if there is none."""
        if not message.get("tool_calls") or self.options.keep_broken_calls:
            return None
        return (broken_arguments if self.preset.parses_arguments else missing_arguments)(message)

    def write(self, row: TrainingRow) -> None:
        """Write as much of a row as the format can carry."""
        if not row.trained:
            return
        try:
            written, carried = self.convert(row), row
        except LeftOut as why:
            written, carried = self.longest(row, why)
        for one in written:
            self.put(carried, one)

    def longest(self, row: TrainingRow, why: LeftOut) -> tuple[list[Written], TrainingRow]:
        """The longest part of a row that can be written; if a part can, so can every shorter one."""
        found: list[Written] = []
        fits, fails = 0, len(row.trained)
        if row.trained[-1] + 1 < len(row.messages):  # what stands after the last reply need not be written
            try:
                return self.convert(row.cut(range(fails))), row.cut(range(fails))
            except LeftOut as problem:
                why = problem
        while fails - fits > 1:
            middle = (fits + fails) // 2
            try:
                found, fits = self.convert(row.cut(range(middle))), middle
            except LeftOut as problem:
                fails, why = middle, problem
        self.exclude([excluded(row, reply, why.reason, why.detail) for reply in row.replies[fits:]], rows=1)
        return found, row.cut(range(fits))

    def convert(self, row: TrainingRow) -> list[Written]:
        """The records of a row, or `LeftOut` if the format cannot carry all of it."""
        if not self.preset.any_context:
            self.check_context(row)
        if self.preset.needs_unicode:
            _refuse_surrogates((row.messages, row.tools, row.metadata, row.rollout))
        try:
            written = self.preset.convert(row)
        except (BadMessage, BadTrajectory) as problem:  # no format has a turn for it
            raise LeftOut("unknown role", str(problem)) from problem
        if sorted(at for one in written for at in one.trained) != list(row.trained):
            raise ExportBroken(f"{self.preset.name} has lost or repeated a reply of row {row.id}; please report this")
        self.check_written(row, written)
        return written

    def check_written(self, row: TrainingRow, written: list[Written]) -> None:
        """That a trainer can take the records: not too long, valid text, no control markers."""
        if self.inspector is not None:
            for one in written:
                self.inspector.refuse(one.record)
        bodies = [*_bodies(row)]
        if self.preset.needs_unicode and any(b"\\u" in body for body in bodies):
            _refuse_surrogates([one.record for one in written])  # an escape in JSON text can hide one
        if not self.options.allow_markers and self.may_hold_markers(row, bodies):
            for one in written:
                if found := self.preset.markers(one.record if one.scanned is None else one.scanned):
                    raise LeftOut("control marker", found[0].reason)

    def may_hold_markers(self, row: TrainingRow, bodies: list[bytes]) -> bool:
        """False if nothing that was recorded of a row holds a control marker: what the format adds is structure."""
        if row.tools is not self.tools[0]:
            self.tools = row.tools, may_hold_markers(encode_tools(row.tools))
        return self.tools[1] or any(map(may_hold_markers, bodies))

    def check_context(self, row: TrainingRow) -> None:
        """That the format can carry every message that stands before a trained one."""
        for at, message in enumerate(row.messages):
            if message.get("role") != "assistant":
                _check_parts(at, message)
            elif at not in row.trained and not self.is_raw(message):
                why = why_untrainable(message) or self.unspoken(message)
                if why and why[0] != "empty reply":
                    raise LeftOut(f"context: {why[0]}", f"message {at}: {why[1]}")
                if broken := self.broken(message):
                    raise LeftOut(f"context: {_BROKEN}", f"message {at}: {broken}")

    def put(self, row: TrainingRow, one: Written) -> None:
        replies = [reply for reply in row.replies if reply.at in one.trained]
        named = [*(reply.off_policy for reply in replies if reply.off_policy), *one.differs]
        if self.options.keep_broken_calls and any(map(broken_arguments, row.messages[: replies[-1].at + 1])):
            named.append(_BROKEN_WRITTEN)
        differs = tuple(dict.fromkeys(named))
        last = replies[-1].call
        record = one.record | {
            "id": _id(row.rollout),
            "model": last.model,
            "finish_reason": last.finish_reason or "",
            "on_policy": not differs,
            "off_policy": "; ".join(differs),
            **({} if "metadata" in one.record else {"metadata": self.shaped(row.metadata)}),
        }
        self.receipts.add(row, replies, differs, self.sink.write(record))
        report = self.report
        if self.inspector is not None:
            report.tokens = (report.tokens or 0) + self.inspector.count(one.record)
        report.written += 1
        report.trained_messages += len(replies)
        report.replies += len(replies)
        report.off_policy += bool(differs)
        report.off_policy_reasons.update(differs)
        report.sample = report.sample or record

    def shaped(self, metadata: dict[str, Any]) -> dict[str, Any]:
        if metadata is not self.metadata[0]:
            self.metadata = metadata, shaped_metadata(metadata, Columns())
        return self.metadata[1]

    def exclude(self, replies: list[Excluded], rows: int = 0) -> None:
        for number, one in enumerate(replies):
            self.receipts.exclude(one)
            first = number == 0 or replies[number - 1].reason != one.reason
            self.report.leave_out(one.reason, f"{one.rollout}#{one.index}", one.detail, 1, rows if first else 0)

    def finished(self) -> Report:
        self.report.template = None if self.inspector is None else self.inspector.found
        self.report.root = self.receipts.root()
        return self.report


class ExportBroken(StemmaError, RuntimeError):
    """A preset that does not account for every reply: a fault of ours, which stops the export."""


def _bodies(row: TrainingRow) -> Iterator[bytes]:
    """What was recorded of a row, as JSON."""
    if not row.source.line:
        yield _json(row.messages)
    for message in row.source.line[: row.source.place(len(row.messages) - 1) + 1]:
        yield message.body


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return encode(value)


def _check_parts(at: int, message: Mapping[str, Any]) -> None:
    for field in MEDIA_FIELDS:
        if message.get(field):
            raise LeftOut("not text", f"message {at} has {field!r}, which training on text cannot see")
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, str) and not (isinstance(part, dict) and part.get("type") in _TEXT_PARTS):
            kind = part.get("type") if isinstance(part, dict) else part
            raise LeftOut("not text", f"message {at} holds {kind!r:.80}, which training on text cannot see")


def _refuse_surrogates(value: Any) -> None:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError as problem:
        raise LeftOut("lone surrogate", f"Arrow refuses it: {problem}") from problem


def _id(name: str) -> str:
    """A conversation's name as a column: Arrow would take text that looks like a time for one, so that is quoted."""
    return compact_json(name) if _LOOKS_LIKE_A_TIME.fullmatch(name) else name


def _write_manifest(data: Path, report: Report, version: str) -> None:
    with open(data, "rb") as file:
        content = file_digest(file, "sha256").hexdigest()
    manifest = TextManifest(
        preset=report.preset,
        file=data.name,
        stemma=version,
        data=content,
        root=report.root,
        counts={
            "rows": report.written,
            "replies": report.replies,
            "trained": report.trained_messages,
            "excluded": report.replies - report.trained_messages,
            "off_policy_rows": report.off_policy,
        },
        excluded={reason: met.replies for reason, met in report.left_out.items() if met.replies},
    )
    write_whole(data.with_name(MANIFEST), msgspec.json.format(msgspec.json.encode(manifest)))


class Lines:
    """One JSON object a line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, row: Mapping[str, Any]) -> bytes:
        line = to_line(row)
        self._file.write(line)
        return line.rstrip(b"\n")

    def close(self) -> None:
        """Nothing to finish."""


class Whole:
    """A file that appears under its name when the block ends well, and not at all otherwise.

    Nobody else can write it meanwhile: a second writer gets `NotWritten` at once.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.partial = path, path.with_name(path.name + ".partial")

    def __enter__(self) -> IO[bytes]:
        self.file = open(self.partial, "ab", buffering=1 << 20)
        try:
            flock(self.file, LOCK_EX | LOCK_NB)
            if not os.path.samestat(os.fstat(self.file.fileno()), os.stat(self.partial)):
                raise BlockingIOError  # opened just before the other writer gave it its final name
        except (BlockingIOError, FileNotFoundError) as problem:
            self.file.close()
            raise NotWritten(f"{self.path}: another export is writing it; name another place") from problem
        self.file.truncate(0)
        self.file.seek(0)
        return self.file

    def __exit__(self, kind: type[BaseException] | None, trouble: BaseException | None, _: object) -> None:
        whole = False
        try:
            if isinstance(trouble, OSError) and trouble.filename is None:  # a write, which does not say where
                raise trouble
            if kind is None:
                self.file.flush()
                os.fsync(self.file.fileno())
                os.replace(self.partial, self.path)
                whole = True
        except OSError as problem:
            raise NotWritten(f"{self.path}: {problem}; the file was not written") from problem
        finally:  # while it is locked: afterwards the name may be another writer's
            if not whole:
                self.partial.unlink(missing_ok=True)
            with suppress(OSError):  # what is not on the disk by now was said above
                self.file.close()


def write_whole(path: Path, content: bytes) -> None:
    """A small file, whole or not at all."""
    with Whole(path) as file:
        file.write(content)


def _write_beside(data: Path, name: str, text: str, report: Report) -> None:
    path = data.with_name(name)
    write_whole(path, text.encode())
    report.sidecars.append(str(path))


def compact_json(value: Any) -> str:
    """JSON text for a column that holds it as a string."""
    return json.dumps(value, ensure_ascii=False)
