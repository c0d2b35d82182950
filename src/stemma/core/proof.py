"""The proof that rows are on-policy, from the rows and the receipts alone.

It knows nothing of graphs or covers. For each row it goes from left to right and shows that

    what stands before a trained span   is, id for id, what the model was sent   (one running hash over the row)
    the span itself                     is what the model sampled, and its logprobs are those received, bit for bit;
                                        all of it is trained but the tokens that the receipt lists as forced
    everything else                     is not trained, and nothing stands after the last span
    every other column                  says what the receipts say: reward, weight, sampler, policy …
    the line that holds the row         is, byte for byte, the one that was written

and over all rows that each call is trained exactly once or excluded with a reason, that every receipt makes the call
id that was given at capture, that each row weighs its share of the tokens that its rollout trains, and that the root of
the receipts is the manifest's. It shows that context and accounting are right; that an engine told the truth it cannot
show.

    row  1 2 [3] 4 5 [6]    H(1 2) = prompt of call a, 3 = its sample; H(1 2 3 4 5) = prompt of call b, 6 = its sample

`tests/core/test_proof.py` changes every token, mask, logprob and record, and sees each change found.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import zip_longest
from math import fsum, isclose
from struct import pack
from typing import Any

import msgspec

from stemma.core.ids import digest
from stemma.core.receipts import Exclusion, Forced, Manifest, Receipt, RowLine, Span, from_line, merkle_root
from stemma.core.verify import Finding, Kind

IGNORED = -100
"""The label of a token that is not trained."""

_HASH, _HASHES = 32, 7 * 32
"""The bytes of one hash, and of all that a receipt has before its event."""
_NOTHING = sha256(b"").hexdigest()
_WIDTH = 4
_TOLD = b"="
"""How known tokens begin in a call's id; none at all begin with nothing."""
_UNTRAINED = pack("<i", IGNORED)
_NO_LOGPROB = pack("<f", float("nan"))
"""The logprob of a token for which the engine gave none."""


class WrittenRow(msgspec.Struct, frozen=True):
    """A row as it was read back from an export."""

    ids: bytes
    """Packed int32."""
    labels: bytes
    """The same where trained, -100 elsewhere."""
    logprobs: bytes | None
    """Packed float32, zero where untrained; None if the format has none."""
    facts: dict[str, Any] = {}
    """What the format says of it beside its tokens, by the names of `_Proof.facts`."""
    faults: tuple[str, ...] = ()
    """Where columns that say the same thing twice contradict one another, as the reader of the format found."""
    record: str | None = None
    """SHA-256 of the line that holds it, where rows are written as lines."""


class Checked(msgspec.Struct, frozen=True):
    """What a proof came to."""

    findings: list[Finding]
    calls: int = 0
    trained: int = 0
    excluded: dict[str, int] = {}
    rows: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    off_policy: int = 0
    """Trained calls whose rows do not show what the model saw, and say so."""
    not_free: int = 0
    """Trained calls that were sampled under a constraint, a penalty or a bias, and say so."""
    forced_tokens: int = 0
    """Tokens of trained calls that are not trained, because a constraint left one choice."""


def prove(manifest: Manifest, lines: Iterable[bytes], rows: Iterable[WrittenRow]) -> Checked:
    """Check an export; no findings mean that it is what it says."""
    return _Proof(manifest, list(lines)).check(rows)


class _Proof:
    def __init__(self, manifest: Manifest, lines: list[bytes]) -> None:
        self.manifest = manifest
        self.findings: list[Finding] = []
        if merkle_root(lines) != manifest.root:
            self.find("altered", "receipts", "their lines do not make the root that the manifest has")
        self.receipts: dict[str, Receipt] = {}
        self.rows: list[RowLine] = []
        self.exclusions: list[Exclusion] = []
        for number, line in enumerate(lines, 1):
            self.read(number, line)
        self.trained: Counter[str] = Counter()
        self.tokens = self.trained_tokens = 0

    def find(self, kind: Kind, subject: str, detail: str) -> None:
        self.findings.append(Finding(kind, subject, detail))

    def read(self, number: int, line: bytes) -> None:
        try:
            record = from_line(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            self.find("damaged", f"receipts line {number}", str(problem))
            return
        match record:
            case Receipt():
                if record.call in self.receipts:
                    self.find("altered", f"call {record.call}", "it has two receipts")
                self.receipts[record.call] = record
            case RowLine():
                self.rows.append(record)
            case Exclusion():
                self.exclusions.append(record)

    def check(self, rows: Iterable[WrittenRow]) -> Checked:
        for receipt in self.receipts.values():
            self.check_receipt(receipt)
        for number, (row, line) in enumerate(zip_longest(rows, self.rows)):
            if row is None or line is None:
                self.find("missing", f"row {number}", "the data and the receipts have different numbers of rows")
                break
            self.check_row(f"row {number}", row, line)
        self.check_calls()
        self.check_weights()
        self.check_counts()
        known = [self.receipts[call] for call in self.trained if call in self.receipts]
        return Checked(
            findings=self.findings,
            calls=len(self.receipts) + len(self.exclusions),
            trained=len(self.trained),
            excluded=dict(Counter(one.reason for one in self.exclusions)),
            rows=len(self.rows),
            tokens=self.tokens,
            trained_tokens=self.trained_tokens,
            off_policy=sum(receipt.context != "sampled" for receipt in known),
            not_free=sum(not _is_free(receipt) for receipt in known),
            forced_tokens=sum(map(_forced_tokens, known)),
        )

    def check_receipt(self, receipt: Receipt) -> None:
        """That the hashes in a receipt make the id that the call has."""
        hashes = (receipt.saw, receipt.made, receipt.body, receipt.tools, receipt.prompt, receipt.sampled)
        try:
            told = bytes.fromhex("".join((*hashes, receipt.logprobs, receipt.event)))
        except ValueError:
            told = b""
        parts = (told[at : at + _HASH] for at in range(0, _HASHES, _HASH))
        if digest("call", *parts, told[_HASHES:]).hex() != receipt.call:
            self.find("altered", f"call {receipt.call}", "its receipt does not make its id")

    # ── one row ──────────────────────────────────────────────────────────────────────────────────────────────

    def check_row(self, subject: str, row: WrittenRow, line: RowLine) -> None:
        for detail in (*row.faults, *self.faults(row, line), *self.other_faults(row, line)):
            self.find("altered", subject, detail)
        self.tokens += len(row.ids) // _WIDTH
        self.trained.update(span.call for span in line.spans)

    def faults(self, row: WrittenRow, line: RowLine) -> Iterator[str]:
        """What is wrong with a row."""
        if len(row.labels) != len(row.ids) or (row.logprobs is not None and len(row.logprobs) != len(row.ids)):
            yield "its columns have different lengths"
            return
        context, at, models, ids = sha256(_TOLD), 0, set(), memoryview(row.ids)  # hashed without being copied
        for span in line.spans:
            receipt = self.receipts.get(span.call)
            if receipt is None:
                yield f"it trains call {span.call}, which has no receipt"
                return
            if not at <= span.start < span.end <= len(row.ids) // _WIDTH:
                yield f"the span of call {span.call} overlaps another or lies outside"
                return
            context.update(ids[at * _WIDTH : span.start * _WIDTH])
            yield from _span_faults(row, at, span, receipt, context.copy().hexdigest())
            context.update(ids[span.start * _WIDTH : span.end * _WIDTH])
            at = span.end
            models.add(receipt.model)
            self.trained_tokens += span.end - span.start - _forced_tokens(receipt)
        if not line.spans:
            yield from _filler_faults(row)
        elif at * _WIDTH != len(row.ids):
            yield "it does not end with its last sampled token"
        if len(models) > 1:
            yield f"it mixes the models {', '.join(sorted(models))}"

    def other_faults(self, row: WrittenRow, line: RowLine) -> Iterator[str]:
        """What is wrong beside the tokens."""
        receipts = [self.receipts[span.call] for span in line.spans if span.call in self.receipts]
        if len(receipts) != len(line.spans):
            return
        if any(receipt.model != line.model or receipt.rollout != line.rollout for receipt in receipts):
            yield "its calls are of another model or rollout than it says"
        known = self.facts(line, receipts)
        for name, value in row.facts.items():
            if name not in known or not _same(value, known[name]):
                yield f"its {name} is {value!r:.60}; the receipts say {known.get(name)!r:.60}"
        if row.record != line.record:
            yield "the line that holds it is not the one that was written"

    def facts(self, line: RowLine, receipts: list[Receipt]) -> dict[str, Any]:
        """What the receipts say of a row."""
        policy = [
            [span.start + start, version]
            for span, receipt in zip(line.spans, receipts, strict=True)
            for start, version in receipt.policy
        ]
        return {
            "rollout_id": line.rollout,
            "group_id": line.group,
            "weight": line.weight,
            "reward": line.reward,
            "advantage": line.advantage,
            "model": line.model,
            "on_policy": all(one.context == "sampled" and _is_free(one) for one in receipts),
            "temperature": _shared([one.temperature for one in receipts]),
            "top_p": _shared([one.top_p for one in receipts]),
            "constrained": any(one.constrained for one in receipts),
            "finish_reason": receipts[-1].finish_reason if receipts else None,
            "calls": [span.call for span in line.spans],
            "starts": [span.start for span in line.spans],
            "ends": [span.end for span in line.spans],
            "policy": policy,
            "policy_starts": [start for start, _ in policy],
            "policy_versions": [version for _, version in policy],
        }

    # ── all of them ──────────────────────────────────────────────────────────────────────────────────────────

    def check_calls(self) -> None:
        """That each call is trained once, or excluded."""
        for call in self.receipts:
            if (times := self.trained[call]) != 1:
                self.find("altered", f"call {call}", f"it is trained {times} times")
        excluded = Counter(one.call for one in self.exclusions)
        for call, times in excluded.items():
            if times > 1 or call in self.receipts:
                self.find("altered", f"call {call}", "it is excluded and accounted for elsewhere as well")

    def check_weights(self) -> None:
        """That splitting a rollout into rows has not changed what it weighs."""
        rollouts: dict[str, list[tuple[float, int]]] = {}
        for row in self.rows:
            if row.spans:
                rollouts.setdefault(row.rollout, []).append((row.weight, self.row_trains(row)))
        for rollout, parts in rollouts.items():
            total, trained = fsum(weight for weight, _ in parts), sum(tokens for _, tokens in parts)
            if not isclose(total, 1.0, abs_tol=1e-6):
                self.find("altered", f"rollout {rollout}", f"its rows weigh {total:.6f} together, not 1")
            elif any(not isclose(w, n / (trained or 1), abs_tol=1e-9) for w, n in parts):
                self.find("altered", f"rollout {rollout}", "its rows do not weigh what they train")

    def row_trains(self, row: RowLine) -> int:
        forced = sum(_forced_tokens(self.receipts[span.call]) for span in row.spans if span.call in self.receipts)
        return sum(span.end - span.start for span in row.spans) - forced

    def check_counts(self) -> None:
        fillers = sum(not row.spans for row in self.rows)
        found = {
            "calls": len(self.receipts) + len(self.exclusions),
            "trained": len(self.receipts),
            "excluded": len(self.exclusions),
            "rows": len(self.rows) - fillers,
            "filler_rows": fillers,
            "row_tokens": self.tokens,
            "trained_tokens": self.trained_tokens,
            "forced_tokens": sum(map(_forced_tokens, self.receipts.values())),
        }
        for what, count in found.items():
            said = self.manifest.counts.get(what)
            if said != count:
                self.find("altered", "manifest", f"it counts {said} {what}; there are {count}")
        if self.manifest.excluded != dict(Counter(one.reason for one in self.exclusions)):
            self.find("altered", "manifest", "it counts other exclusions than the receipts list")
        policies = Counter(version for one in self.receipts.values() for _, version in one.policy)
        if self.manifest.policies != dict(policies):
            self.find("altered", "manifest", "it counts other versions of the policy than the receipts have")


def _span_faults(row: WrittenRow, at: int, span: Span, receipt: Receipt, context: str) -> Iterator[str]:
    """What is wrong with a span and the gap before it, which begins at `at`."""
    before, here = slice(at * _WIDTH, span.start * _WIDTH), slice(span.start * _WIDTH, span.end * _WIDTH)
    if context != (receipt.prompt if receipt.context == "sampled" else receipt.shown):
        yield f"what stands before call {span.call} is not what the model was sent"
    if sha256(_TOLD + row.ids[here]).hexdigest() != receipt.sampled:
        yield f"its tokens {span.start} to {span.end} are not what call {span.call} sampled"
    trained = _without(row.ids[here], receipt.forced, _UNTRAINED)
    if row.labels[here] != trained or row.labels[before] != _UNTRAINED * (span.start - at):
        yield f"the mask up to the end of call {span.call} is not the call's own tokens"
    if row.logprobs is not None:
        if row.logprobs[before] != bytes((span.start - at) * _WIDTH):
            yield f"there are logprobs before call {span.call} where nothing was sampled"
        if not _same_logprobs(row.logprobs[here], receipt):
            yield f"the logprobs of call {span.call} are not those received"


def _filler_faults(row: WrittenRow) -> Iterator[str]:
    if row.labels != _UNTRAINED * (len(row.labels) // _WIDTH) or any(row.logprobs or b""):
        yield "it is a filler, and yet it trains something"


def _same_logprobs(written: bytes, receipt: Receipt) -> bool:
    zero = bytes(_WIDTH)
    if receipt.context != "sampled" or receipt.logprobs == _NOTHING:  # not known
        return written == _without(_NO_LOGPROB * (len(written) // _WIDTH), receipt.forced, zero)
    if written != _without(written, receipt.forced, zero):
        return False
    for run in receipt.forced:
        try:
            received = bytes.fromhex(run.logprobs)
        except ValueError:
            return False
        written = written[: run.start * _WIDTH] + received + written[run.end * _WIDTH :]
    return sha256(_TOLD + written).hexdigest() == receipt.logprobs


def _without(values: bytes, forced: Iterable[Forced], filler: bytes) -> bytes:
    """The four-byte values of a span, with `filler` in place of those that are forced."""
    for run in forced:
        values = values[: run.start * _WIDTH] + filler * (run.end - run.start) + values[run.end * _WIDTH :]
    return values


def _forced_tokens(receipt: Receipt) -> int:
    return sum(run.end - run.start for run in receipt.forced)


def _is_free(receipt: Receipt) -> bool:
    return not receipt.constrained and not receipt.adjusted


def _shared(values: list[float | None]) -> float | None:
    return values[0] if len(set(values)) == 1 else None


def _same(value: Any, known: Any) -> bool:
    """Equal, and a truth value only equal to itself."""
    return value is known if isinstance(value, bool) or isinstance(known, bool) else bool(value == known)
