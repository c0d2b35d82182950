"""Writing rows for a trainer, one after another, with an account of every row.

A file appears under its final name only when it is whole. A row is either written or counted under the reason why
not, with one example of each; the report says so on screen and in `report.json`. The same rows give the same bytes.
`tests/formats/test_export.py` proves it; `tests/trainers/` loads the files with the trainers' own code.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from stemma.errors import BadMessage, BadName, BadRecord, BadTrajectory, NotWritten
from stemma.formats.jsonl import to_line
from stemma.formats.markers import Finding, find_markers
from stemma.formats.training import LeftOut, TrainingRow


def hermes_markers(row: TrainingRow) -> list[Finding]:
    """Those of a row written as Hermes text, where JSON bodies are sealed."""
    return find_markers(row.turns())


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """What a trainer wants: how a row looks, and what lies beside the data."""

    name: str
    convert: Callable[[TrainingRow], dict[str, Any] | list[dict[str, Any]]]
    """The row as that trainer loads it (several, if it must be split), or `LeftOut`."""
    sidecars: Callable[[str], dict[str, str]] = lambda data_file: {}
    """Files to write beside the data, by name, given the data file's name."""
    suffix: str = ".jsonl"
    needs_unicode: bool = True
    """Whether its reader refuses lone surrogates (Arrow does), so that such a row must stay out."""
    open_sink: "Callable[[IO[bytes]], Sink] | None" = None
    """How rows are written, if not one JSON object a line."""
    markers: Callable[[TrainingRow], list[Finding]] = hermes_markers
    """The control markers that stand where that trainer would take them for structure."""


class Sink(Protocol):
    """Where converted rows go."""

    def write(self, row: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class Reasons(msgspec.Struct):
    """How often a reason was met, and the first row it was met at."""

    count: int = 0
    example: str = ""
    detail: str = ""


class Report(msgspec.Struct):
    """The account of an export."""

    preset: str
    file: str = ""
    written: int = 0
    trained_messages: int = 0
    off_policy: int = 0
    """Rows written whose replies were sampled under an ephemeral prompt or prefill that is not in them."""
    left_out: dict[str, Reasons] = msgspec.field(default_factory=dict)
    tokens: int | None = None
    """Tokens in all rows written, if a tokenizer was given."""
    sample: dict[str, Any] | None = None
    """The first row, as written."""
    sidecars: list[str] = msgspec.field(default_factory=list)

    def leave_out(self, row_id: str, why: LeftOut) -> None:
        """Count a row that is not written."""
        reasons = self.left_out.setdefault(why.reason, Reasons(example=row_id, detail=why.detail))
        reasons.count += 1


Policy = Callable[[TrainingRow], None]
"""Raises `LeftOut` for a row that must not be written."""
Count = Callable[[list[str]], int]
"""How many tokens some texts have."""


def export(
    rows: Iterable[TrainingRow | BadRecord],
    preset: Preset,
    out: Path,
    *,
    allow_markers: bool = False,
    count_tokens: Count | None = None,
    open_sink: Callable[[IO[bytes]], Sink] | None = None,
) -> Report:
    """Write `rows` for a trainer into `out` (a folder, or the data file itself)."""
    data = _data_file(out, preset)
    report = Report(preset=preset.name, file=str(data), tokens=0 if count_tokens else None)
    policies = _policies(preset, allow_markers)
    data.parent.mkdir(parents=True, exist_ok=True)
    opened = open_sink or preset.open_sink or Lines
    with Whole(data) as file, closing(opened(file)) as sink:  # closed also when something fails, as Parquet's must be
        for row in rows:
            _export_row(row, preset, policies, sink, report, count_tokens)
    for name, text in preset.sidecars(data.name).items():
        _write_beside(data, name, text, report)
    write_whole(data.with_name("report.json"), msgspec.json.format(msgspec.json.encode(report)))
    return report


def _data_file(out: Path, preset: Preset) -> Path:
    if out.suffix not in (".jsonl", ".parquet"):
        return out / f"train{preset.suffix}"
    if out.suffix != preset.suffix:
        raise BadName(f"{preset.name} writes {preset.suffix} files; name the output {out.with_suffix(preset.suffix)}")
    return out


def _export_row(
    row: TrainingRow | BadRecord,
    preset: Preset,
    policies: list[Policy],
    sink: Sink,
    report: Report,
    count_tokens: Count | None,
) -> None:
    try:
        if isinstance(row, BadRecord):
            raise LeftOut("unreadable", str(row))
        for policy in policies:
            policy(row)
        converted = preset.convert(row)
    except LeftOut as why:
        report.leave_out(row.id if isinstance(row, TrainingRow) else str(row), why)
        return
    for one in [converted] if isinstance(converted, dict) else converted:
        sink.write(one)
        report.written += 1
        report.sample = report.sample or one
    report.trained_messages += len(row.trained)
    report.off_policy += not row.on_policy
    if count_tokens is not None and report.tokens is not None:
        report.tokens += count_tokens(texts_of(row))


def _policies(preset: Preset, allow_markers: bool) -> list[Policy]:
    checks: list[Policy] = [_something_trained]
    if preset.needs_unicode:
        checks.append(_is_unicode)
    if not allow_markers:
        checks.append(partial(_no_markers, preset.markers))
    return checks


def _something_trained(row: TrainingRow) -> None:
    if not row.trained:
        raise LeftOut("nothing to train", "no message of it was sampled by a model")


def _is_unicode(row: TrainingRow) -> None:
    try:
        msgspec.json.encode((row.messages, row.tools, row.metadata))
    except UnicodeEncodeError as problem:
        raise LeftOut("lone surrogate", f"Arrow refuses it: {problem}") from problem


def _no_markers(markers: Callable[[TrainingRow], list[Finding]], row: TrainingRow) -> None:
    try:
        found = markers(row)
    except (BadMessage, BadTrajectory) as problem:  # no format has a turn for it
        raise LeftOut("unknown role", str(problem)) from problem
    if found:
        raise LeftOut("control marker", found[0].reason)


def texts_of(row: TrainingRow) -> list[str]:
    """What a tokenizer would count, without a template: the turns as Hermes text."""
    return [turn["value"] for turn in row.turns()]


class Lines:
    """One JSON object a line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(to_line(row))

    def close(self) -> None:
        """Nothing to finish."""


class Whole:
    """A file that appears under its name when the block ends well, and not at all otherwise."""

    def __init__(self, path: Path) -> None:
        self.path, self.partial = path, path.with_name(path.name + ".partial")

    def __enter__(self) -> IO[bytes]:
        self.file = open(self.partial, "wb", buffering=1 << 20)
        return self.file

    def __exit__(self, kind: type[BaseException] | None, trouble: BaseException | None, _: object) -> None:
        try:
            if isinstance(trouble, OSError) and trouble.filename is None:  # a write, which does not say where
                raise trouble
            if kind is None:
                self.file.flush()
                os.fsync(self.file.fileno())
            self.file.close()
            if kind is None:
                os.replace(self.partial, self.path)
        except OSError as problem:
            raise NotWritten(f"{self.path}: {problem}; the file was not written") from problem
        finally:
            self.partial.unlink(missing_ok=True)


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
