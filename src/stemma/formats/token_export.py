"""Writing token rows, with all that proves them beside the data.

    train.parquet or train.jsonl   the rows
    receipts.jsonl                 for each row its spans; for each trained call its receipt; for each other its reason
    manifest.json                  root, counts, exclusions by reason, breaks by cause, versions
    report.json                    the same for people, with examples

Rollouts are taken group by group, so that advantages and layouts that hold a whole group need one group in memory; what
a format must know of all groups before it can write the first is kept in a temporary file. A call that several rollouts
share, as forks do, is trained in the first of them. Calls of two models are never mixed without being told which one is
trained. Files appear whole or not at all; the same rollouts give the same bytes.
`tests/formats/test_token_export.py` proves it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import file_digest
from itertools import islice
from math import fsum
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from stemma.core.advantages import advantages
from stemma.core.breaks import Break
from stemma.core.exclusions import Rules
from stemma.core.graph import MessageGraph
from stemma.core.receipts import RECEIPTS as RECEIPTS_VERSION
from stemma.core.receipts import Line, Manifest, MerkleRoot, RowLine, to_line
from stemma.core.token_calls import captured
from stemma.core.token_rows import Render, RowPlan, Standing, TokenRow, filler_row, plan_rows
from stemma.errors import BadName, StemmaError
from stemma.formats.export import MANIFEST, RECEIPTS, Whole, check_folder, write_whole
from stemma.formats.token_files import TokenColumns, TokenLines, TokenSink
from stemma.formats.token_preset import Place, TokenPreset

COUNTED = (
    *("groups", "rollouts", "calls", "trained", "excluded"),
    *("rows", "filler_rows", "row_tokens", "trained_tokens", "forced_tokens", "tree_tokens"),
)

Decode = Callable[[int], str]
"""The text of a token."""


class MixedModels(StemmaError, ValueError):
    """Calls of several models, and nobody said which one is trained."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that may be exported."""

    name: str
    load: Callable[[], MessageGraph]
    group: str
    reward: float | None = None


class Example(msgspec.Struct, frozen=True):
    """The first break of a cause: where, and which tokens."""

    rollout: str
    at: int
    was: str | int | None
    now: str | int | None


class TokenReport(msgspec.Struct, kw_only=True):
    """The account of an export of tokens."""

    preset: str
    file: str
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    excluded: Counter[str] = msgspec.field(default_factory=Counter)
    excluded_tokens: Counter[str] = msgspec.field(default_factory=Counter)
    breaks: Counter[str] = msgspec.field(default_factory=Counter)
    examples: dict[str, Example] = msgspec.field(default_factory=dict)
    policies: Counter[str] = msgspec.field(default_factory=Counter)
    logprobs: Counter[str] = msgspec.field(default_factory=Counter)
    """Trained calls by what their logprobs are of (`core/sampler.py`)."""
    off_policy_rows: int = 0
    constrained_rows: int = 0
    group_size: int | None = None
    """How many rows the largest group has, where the format wants groups of certain sizes."""
    root: str = ""


def rollout_of(name: str, metadata: Mapping[str, Any], load: Callable[[], MessageGraph]) -> Rollout:
    """A stored conversation as a rollout.

    Its metadata may name its `group` and its `reward`; the tasks of a batch have both: the samples of one prompt are a
    group. A conversation of which nothing is said is a group of its own.
    """
    group, reward = metadata.get("group"), metadata.get("reward")
    if group is None and isinstance(metadata.get("key"), str):
        group = f"{metadata['key']}-{metadata.get('ordinal', 0)}"
    number = type(reward) in (int, float)
    return Rollout(name=name, load=load, group=name if group is None else str(group), reward=reward if number else None)


def export_tokens(
    rollouts: Iterable[Rollout],
    preset: TokenPreset,
    out: Path,
    rules: Rules,
    *,
    version: str,
    render: Render | None = None,
    decode: Decode | None = None,
) -> TokenReport:
    """Write `rollouts` for a trainer into `out` (a folder, or the data file itself)."""
    data = _data_file(out, preset)
    needs = {"needs_logprobs": preset.needs_logprobs, "needs_reward": preset.needs_reward, "one_row": preset.one_row}
    check_folder(data, preset.name)
    data.parent.mkdir(parents=True, exist_ok=True)
    with Whole(data) as file, Whole(data.with_name(RECEIPTS)) as receipts:
        writing = _Writing(preset, data, file, receipts, msgspec.structs.replace(rules, **needs), render, decode)
        with closing(writing.sink):  # also when something fails: a writer of Parquet must not outlive its file
            planned = (writing.plan_group(group) for group in _groups(rollouts))
            if preset.sizes is None:
                for plans in planned:
                    writing.write_group(plans)
            else:
                writing.write_sized(planned, preset.sizes)
    report = writing.finished()
    _write_manifest(data, report, version)
    return report


def _data_file(out: Path, preset: TokenPreset) -> Path:
    if out.suffix not in (".jsonl", ".parquet"):
        return out / f"train{preset.suffix}"
    if out.suffix == ".parquet" and preset.columns is None:
        raise BadName(f"{preset.name} writes .jsonl files; name the output {out.with_suffix('.jsonl')}")
    return out


def _groups(rollouts: Iterable[Rollout]) -> Iterable[list[Rollout]]:
    found: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        found.setdefault(rollout.group, []).append(rollout)
    return found.values()


def _write_manifest(data: Path, report: TokenReport, version: str) -> None:
    with open(data, "rb") as file:
        content = file_digest(file, "sha256").hexdigest()
    manifest = Manifest(
        preset=report.preset,
        file=data.name,
        stemma=version,
        data=content,
        root=report.root,
        counts={what: report.counts[what] for what in COUNTED},
        excluded=dict(report.excluded),
        breaks=dict(report.breaks),
        policies=dict(report.policies),
        logprobs=dict(report.logprobs),
        receipts=RECEIPTS_VERSION,
    )
    write_whole(data.with_name(MANIFEST), msgspec.json.format(msgspec.json.encode(manifest)))
    write_whole(data.with_name("report.json"), msgspec.json.format(msgspec.json.encode(report)))


_pack_plans = msgspec.msgpack.Encoder().encode
_unpack_plans = msgspec.msgpack.Decoder(list[RowPlan]).decode


def _filler_reward(rows: list[TokenRow], preset: TokenPreset) -> float | None:
    """None, or where a format needs a number the mean of the rows', which it does not move."""
    known = [row.standing.reward for row in rows if row.standing.reward is not None]
    return fsum(known) / len(known) if preset.needs_reward and known else None


def _compared(plan: RowPlan, advantage: float | None) -> RowPlan:
    """The plan with its rollout's advantage on every row."""
    rows = [replace(row, standing=replace(row.standing, advantage=advantage)) for row in plan.rows]
    return replace(plan, rows=rows)


class _Writing:
    """An export under way."""

    def __init__(
        self,
        preset: TokenPreset,
        data: Path,
        file: IO[bytes],
        receipts: IO[bytes],
        rules: Rules,
        render: Render | None,
        decode: Decode | None,
    ) -> None:
        self.preset, self.rules, self.render, self.decode = preset, rules, render, decode
        self.folder = data.parent
        columns = preset.columns if data.suffix == ".parquet" else None
        self.sink: TokenSink = TokenLines(file) if columns is None else TokenColumns(file, columns)
        self.receipts, self.root = receipts, MerkleRoot()
        self.report = TokenReport(preset=preset.name, file=str(data))
        self.accounted: set[str] = set()
        self.model = rules.model
        self.written = Place()

    def plan_group(self, group: list[Rollout]) -> list[RowPlan]:
        """The rows of a group; a rollout of which nothing is trained is not one that others are compared with."""
        self.report.counts["groups"] += 1
        plans = [self.plan(rollout) for rollout in group]
        trained = [rollout for rollout, plan in zip(group, plans, strict=True) if plan.rows]
        known = advantages({rollout.name: rollout.reward for rollout in trained})
        return [_compared(plan, known.get(rollout.name)) for rollout, plan in zip(group, plans, strict=True)]

    def write_sized(self, planned: Iterable[list[RowPlan]], sizes: Callable[[Sequence[int]], list[int]]) -> None:
        """Write groups that must have certain sizes; they are kept in a file until all are known."""
        with TemporaryFile(dir=self.folder) as kept:
            rows = []
            for plans in planned:
                packed = _pack_plans(plans)
                kept.write(len(packed).to_bytes(8, "big") + packed)
                rows.append(sum(len(plan.rows) for plan in plans))
            kept.seek(0)
            wanted = iter(sizes(found) if (found := [number for number in rows if number]) else ())
            for number in rows:
                plans = _unpack_plans(kept.read(int.from_bytes(kept.read(8), "big")))
                self.write_group(plans, next(wanted) if number else 0)

    def write_group(self, plans: list[RowPlan], size: int = 0) -> None:
        """Write the rows of a group, and as many fillers as it needs to have `size`."""
        rows = [row for plan in plans for row in plan.rows]
        if size:
            self.report.group_size = max(size, self.report.group_size or 0)
            rows += [filler_row(rows[0], _filler_reward(rows, self.preset))] * (size - len(rows))
        lines = iter(self.written_lines(rows))
        for plan in plans:
            self.account([*islice(lines, len(plan.rows)), *plan.receipts, *plan.exclusions])
        self.account(list(lines))
        fillers = [row for row in rows if not row.spans]
        self.report.counts.update(filler_rows=len(fillers), row_tokens=sum(row.length for row in fillers))

    def written_lines(self, rows: list[TokenRow]) -> list[RowLine]:
        """Write rows; what the receipts say of them."""
        place, waiting, lines = self.written, iter(rows), []
        for record in self.preset.write(rows, place):
            digest = self.sink.write(record)
            lines += [row.line(digest) for row in islice(waiting, self.preset.rows_in(record))]
        rollouts = len({row.rollout for row in rows})
        self.written = Place(
            group=place.group + bool(rows), row=place.row + len(rows), rollout=place.rollout + rollouts
        )
        return lines

    def plan(self, rollout: Rollout) -> RowPlan:
        """The rows of a rollout, and the counts of everything."""
        calls = captured(rollout.load(), rollout.name)
        standing = Standing(group=rollout.group, reward=rollout.reward)
        found = plan_rows(rollout.name, calls, self.rules, standing, self.render, self.accounted)
        self.accounted.update(one.call for one in found.receipts)
        self.accounted.update(one.call for one in found.exclusions)
        self.one_model(rollout.name, found.models)
        self.count(found)
        self.count_breaks(rollout.name, found.breaks)
        return found

    def one_model(self, rollout: str, models: Iterable[str]) -> None:
        for model in models:
            self.model = self.model or model
            if model != self.model:
                raise MixedModels(
                    f"{rollout}: its calls are those of {model!r}, and others are of {self.model!r}; choose the one to"
                    " train with --model, and the other's calls are counted as left out"
                )

    def account(self, records: Iterable[Line]) -> None:
        for record in records:
            line = to_line(record)
            self.root.add(line)
            self.receipts.write(line + b"\n")

    def count(self, plan: RowPlan) -> None:
        report, rows = self.report, plan.rows
        report.counts.update(
            rollouts=1,
            calls=len(plan.receipts) + len(plan.exclusions),
            trained=len(plan.receipts),
            excluded=len(plan.exclusions),
            rows=len(rows),
            row_tokens=sum(row.length for row in rows),
            trained_tokens=sum(row.trained for row in rows),
            forced_tokens=sum(end - start for row in rows for start, end in row.forced),
            tree_tokens=plan.tree_tokens,
        )
        for one in plan.exclusions:
            report.excluded[one.reason] += 1
            report.excluded_tokens[one.reason] += one.sampled
        report.policies.update(plan.policies)
        report.logprobs.update(plan.sources)
        report.off_policy_rows += sum(not row.on_policy for row in rows)
        report.constrained_rows += sum(row.constrained for row in rows)

    def count_breaks(self, rollout: str, found: list[Break]) -> None:
        for one in found:
            self.report.breaks[one.cause] += 1
            self.report.examples.setdefault(one.cause, Example(rollout, one.at, self.text(one.was), self.text(one.now)))

    def text(self, token: int | None) -> str | int | None:
        return token if token is None or self.decode is None else self.decode(token)

    def finished(self) -> TokenReport:
        self.report.root = self.root.hex()
        return self.report
