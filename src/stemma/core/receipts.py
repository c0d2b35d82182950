"""What an export says about its rows, for a checker that has nothing else: receipts, spans, exclusions, one root.

A receipt holds the hashes that a call's id is made of (`core/ids.py`). The id was made when the call was captured and
saved, over everything the engine gave; so a receipt cannot be fitted to rows afterwards without another id. Lines are
JSON, one record a line; their Merkle root stands in the manifest.

    root(a b c) = H(1, H(1, H(0, a), H(0, b)), H(0, c))      0 marks a leaf, 1 a pair; the odd one out is carried up

`tests/core/test_proof.py` proves that no bit of rows or receipts can change unseen.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Literal

import msgspec

RECEIPTS = 2
"""The version of receipts that prove every column."""

Context = Literal["sampled", "distilled"]
"""sampled: the row shows what the model saw. distilled: it leaves out what only the call saw, and is off-policy."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Tokens `start` to `end` of a row, which `call` sampled."""

    call: str
    start: int
    end: int


class Forced(msgspec.Struct, frozen=True, array_like=True):
    """Tokens `start` to `end` of what a call sampled, for which a constraint left one choice: they are not trained."""

    start: int
    end: int
    logprobs: str
    """Those received, packed float32 in hex, because no row has them; empty if none were given."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, tag="call", omit_defaults=True):
    """A call that is trained."""

    call: str
    """Its id."""
    rollout: str
    model: str
    context: Context
    saw: str
    made: str
    event: str
    body: str
    """Hash over all that is known of it beside tools and tokens: parameters, usage, finish reason, timing …"""
    tools: str
    prompt: str
    """Hash over the ids it was sent."""
    sampled: str
    logprobs: str
    shown: str | None = None
    """Hash over the ids that stand before it in its row, where those are not what it was sent."""
    finish_reason: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    constrained: bool = False
    adjusted: tuple[str, ...] = ()
    """Penalties and biases that were at work (`core/sampler.py`)."""
    logprobs_of: str | None = None
    """`model`: before temperature, penalties and constraints; None if that is not known."""
    policy: tuple[tuple[int, str], ...] = ()
    """From which of its tokens on which version of the policy sampled."""
    forced: tuple[Forced, ...] = ()


class RowLine(msgspec.Struct, frozen=True, kw_only=True, tag="row"):
    """A row, beside its tokens. One without spans is a filler: it trains nothing and makes a group whole."""

    rollout: str
    group: str
    weight: float
    """Its share of the tokens that its rollout trains: the rows of one rollout add up to 1."""
    reward: float | None
    advantage: float | None
    spans: list[Span]
    model: str = ""
    record: str | None = None
    """SHA-256 of the line that holds it, where rows are written as lines."""


class Exclusion(msgspec.Struct, frozen=True, kw_only=True, tag="excluded"):
    """A call that is not trained."""

    call: str
    rollout: str
    reason: str
    detail: str = ""
    sampled: int = 0
    """How many tokens it sampled, as far as that is known."""
    made: str = ""
    """The id of its reply's node."""
    index: int = 0
    """The place of its reply in its line."""


Line = Receipt | RowLine | Exclusion


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What travels with an export."""

    preset: str
    file: str
    stemma: str
    """Which version wrote it."""
    data: str
    """SHA-256 of the file with the rows."""
    root: str
    """The Merkle root over the lines of the receipts."""
    counts: dict[str, int]
    """rollouts, groups, calls, trained, excluded, rows, filler_rows, row_tokens, trained_tokens, forced_tokens,
    tree_tokens."""
    excluded: dict[str, int]
    """Calls by reason."""
    breaks: dict[str, int]
    """By cause."""
    policies: dict[str, int]
    """Trained calls by the version of the policy that sampled them, as far as that is known."""
    logprobs: dict[str, int] = {}
    """Trained calls by what their logprobs are of: `model` (`core/sampler.py`), `unknown`, `none`."""
    receipts: int = 1
    """The version of what the receipts hold: `RECEIPTS` in exports written now; older ones held less."""


def hashed(part: bytes) -> str:
    """The hash of one part of a call's id."""
    return sha256(part).hexdigest()


class MerkleRoot:
    """The root over leaves that come one after another; keeps one hash for each level."""

    def __init__(self) -> None:
        self._levels: list[bytes | None] = []

    def add(self, leaf: bytes) -> None:
        """One more leaf."""
        carried = sha256(b"\0" + leaf).digest()
        for level, waiting in enumerate(self._levels):
            if waiting is None:
                self._levels[level] = carried
                return
            carried, self._levels[level] = sha256(b"\1" + waiting + carried).digest(), None
        self._levels.append(carried)

    def hex(self) -> str:
        """The root over all leaves so far."""
        carried: bytes | None = None
        for waiting in self._levels:
            if waiting is not None:
                carried = waiting if carried is None else sha256(b"\1" + waiting + carried).digest()
        return (carried or sha256(b"").digest()).hex()


def merkle_root(leaves: Iterable[bytes]) -> str:
    """The root over all of `leaves`."""
    root = MerkleRoot()
    for leaf in leaves:
        root.add(leaf)
    return root.hex()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def to_line(record: Line) -> bytes:
    """A record as a line of the receipts, without its newline."""
    return _encode(record)


def from_line(line: bytes) -> Any:
    """The record of a line; raises `msgspec.MsgspecError` for what is none."""
    return _decode(line)
