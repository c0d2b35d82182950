"""The proof that rows are on-policy, from the rows and the receipts alone.

It knows nothing of graphs or covers. For each row it goes from left to right and shows that

    what stands before a trained span   is, id for id, what the model was sent   (one running hash over the row)
    the span itself                     is what the model sampled, and its logprobs are those received, bit for bit
    everything else                     is not trained, and nothing stands after the last span

and over all rows that each call is trained exactly once or excluded with a reason, that every receipt makes the call
id that was given at capture, that the rows of a rollout weigh 1 together, and that the root of the receipts is the
manifest's. It shows that context and accounting are right; that an engine told the truth it cannot show.

    row  1 2 [3] 4 5 [6]    H(1 2) = prompt of call a, 3 = its sample; H(1 2 3 4 5) = prompt of call b, 6 = its sample

`tests/core/test_proof.py` changes every token, mask, logprob and record, and sees each change found.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import zip_longest
from math import fsum, isclose
from struct import pack

import msgspec

from stemma.core.ids import digest
from stemma.core.receipts import Exclusion, Manifest, Receipt, RowLine, Span, from_line, merkle_root
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


class Checked(msgspec.Struct, frozen=True):
    """What a proof came to."""

    findings: list[Finding]
    calls: int
    trained: int
    excluded: dict[str, int]
    rows: int
    tokens: int
    trained_tokens: int
    off_policy: int
    """Trained calls whose rows do not show what the model saw, and say so."""


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
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
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
        reasons = Counter(one.reason for one in self.exclusions)
        return Checked(
            findings=self.findings,
            calls=len(self.receipts) + len(self.exclusions),
            trained=len(self.trained),
            excluded=dict(reasons),
            rows=len(self.rows),
            tokens=self.tokens,
            trained_tokens=self.trained_tokens,
            off_policy=sum(self.receipts[call].context != "sampled" for call in self.trained if call in self.receipts),
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
        for detail in self.faults(row, line):
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
            self.trained_tokens += span.end - span.start
        if at * _WIDTH != len(row.ids):
            yield "it does not end with its last trained token"
        if len(models) > 1:
            yield f"it mixes the models {', '.join(sorted(models))}"

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
        weights: dict[str, list[float]] = {}
        for row in self.rows:
            weights.setdefault(row.rollout, []).append(row.weight)
        for rollout, parts in weights.items():
            if not isclose(fsum(parts), 1.0, abs_tol=1e-6):
                self.find("altered", f"rollout {rollout}", f"its rows weigh {fsum(parts):.6f} together, not 1")

    def check_counts(self) -> None:
        found = {
            "calls": len(self.receipts) + len(self.exclusions),
            "trained": len(self.receipts),
            "excluded": len(self.exclusions),
            "rows": len(self.rows),
            "row_tokens": self.tokens,
            "trained_tokens": self.trained_tokens,
        }
        for what, count in found.items():
            said = self.manifest.counts.get(what)
            if said != count:
                self.find("altered", "manifest", f"it counts {said} {what}; there are {count}")
        if self.manifest.excluded != dict(Counter(one.reason for one in self.exclusions)):
            self.find("altered", "manifest", "it counts other exclusions than the receipts list")


def _span_faults(row: WrittenRow, at: int, span: Span, receipt: Receipt, context: str) -> Iterator[str]:
    """What is wrong with a span and the gap before it, which begins at `at`."""
    before, here = slice(at * _WIDTH, span.start * _WIDTH), slice(span.start * _WIDTH, span.end * _WIDTH)
    if context != (receipt.prompt if receipt.context == "sampled" else receipt.shown):
        yield f"what stands before call {span.call} is not what the model was sent"
    if sha256(_TOLD + row.ids[here]).hexdigest() != receipt.sampled:
        yield f"its tokens {span.start} to {span.end} are not what call {span.call} sampled"
    if row.labels[here] != row.ids[here] or row.labels[before] != _UNTRAINED * (span.start - at):
        yield f"the mask up to the end of call {span.call} is not the call's own tokens"
    if row.logprobs is not None:
        if row.logprobs[before] != bytes((span.start - at) * _WIDTH):
            yield f"there are logprobs before call {span.call} where nothing was sampled"
        if not _same_logprobs(row.logprobs[here], receipt):
            yield f"the logprobs of call {span.call} are not those received"


def _same_logprobs(written: bytes, receipt: Receipt) -> bool:
    unknown = receipt.context != "sampled" or receipt.logprobs == _NOTHING
    if unknown:
        return written == _NO_LOGPROB * (len(written) // _WIDTH)
    return sha256(_TOLD + written).hexdigest() == receipt.logprobs
