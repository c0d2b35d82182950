"""What a trainer that takes tokens wants: how rows look to it, and how they are read back for the proof.

Most such trainers cut a row into the prompt, which ends where the first sampled token begins, and the response, in
which a mask says what is trained:

    1 2 [3] 4 [5]      prompt 1 2 · response 3 4 5 · mask 1 0 1

Some take one sequence a rollout (`one_row`), some take groups of certain sizes only (`sizes`): such a group is filled
with rows that train nothing. `tests/formats/test_token_presets.py` writes and reads back every preset.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stemma.core.call import pack_ids, pack_logprobs, unpack_ids, unpack_logprobs
from stemma.core.proof import IGNORED, WrittenRow
from stemma.core.token_rows import TokenRow

NAN = float("nan")

Records = list[dict[str, Any]]

ABOUT = (
    *("rollout_id", "group_id", "weight", "reward", "advantage", "on_policy", "model"),
    *("temperature", "top_p", "constrained", "finish_reason"),
)
"""What every record says of a row beside its tokens."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group stands in its file: its number, and the numbers of its first row and its first rollout."""

    group: int = 0
    row: int = 0
    rollout: int = 0


_FIRST = Place()


class TokenPreset(msgspec.Struct, frozen=True, kw_only=True):
    """One trainer's layout."""

    name: str
    layout: Callable[[list[TokenRow], Place], Records]
    """The records for the rows of one group, which are one at least; the rows keep their order."""
    read: Callable[[dict[str, Any]], list[WrittenRow]]
    """The rows of a record, as they were given to `layout`, and all that the record says of them."""
    rows_in: Callable[[dict[str, Any]], int] = lambda record: 1
    """How many rows a record holds."""
    columns: dict[str, str] | None = None
    """Its columns and their types, if it can be written as Parquet; that is then what it is unless asked otherwise."""
    needs_logprobs: bool = False
    needs_reward: bool = False
    one_row: bool = False
    """It takes one sequence for each rollout."""
    sizes: Callable[[Sequence[int]], list[int]] | None = None
    """The sizes that groups must have, for the numbers of rows they have; None if any will do."""

    def write(self, rows: list[TokenRow], place: Place = _FIRST) -> Records:
        """The records for the rows of one group."""
        return self.layout(rows, place) if rows else []

    @property
    def suffix(self) -> str:
        """What its file is called if nobody says."""
        return ".jsonl" if self.columns is None else ".parquet"


class Parts(msgspec.Struct, frozen=True):
    """A row as prompt and response; mask and logprobs are the response's."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]


def parts_of(row: TokenRow) -> Parts:
    """The row, cut before its first sampled token; a filler before its last."""
    cut = row.spans[0].start if row.spans else row.length - 1
    ids, logprobs = unpack_ids(row.ids).tolist(), unpack_logprobs(row.logprobs()).tolist()
    return Parts(ids[:cut], ids[cut:], list(row.mask()[cut:]), logprobs[cut:])


def from_parts(
    prompt: list[int],
    response: list[int],
    mask: list[int],
    logprobs: Sequence[float | None],
    facts: dict[str, Any],
    faults: Sequence[str] = (),
) -> WrittenRow:
    """The row that was cut into these."""
    if any(on not in (0, 1) for on in mask):
        faults = [*faults, "its mask has something else than 0 and 1"]
    labels = [IGNORED] * len(prompt) + [token if on else IGNORED for token, on in zip(response, mask, strict=True)]
    return written_row([*prompt, *response], labels, [*[0.0] * len(prompt), *logprobs], facts, faults)


def written_row(
    ids: list[int],
    labels: list[int],
    logprobs: Sequence[float | None],
    facts: dict[str, Any],
    faults: Sequence[str] = (),
) -> WrittenRow:
    """A row from plain lists; a logprob that is None was not known."""
    known = (NAN if one is None else one for one in logprobs)
    return WrittenRow(pack_ids(ids), pack_ids(labels), pack_logprobs(known), facts, tuple(faults))


def about(row: TokenRow) -> dict[str, Any]:
    """What every record says of the row beside its tokens."""
    standing = row.standing
    return {
        "rollout_id": row.rollout,
        "group_id": standing.group,
        "weight": row.weight,
        "reward": standing.reward,
        "advantage": standing.advantage,
        "on_policy": row.on_policy,
        "model": row.model,
        "temperature": row.temperature,
        "top_p": row.top_p,
        "constrained": row.constrained,
        "finish_reason": row.finish_reason,
    }


def facts_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """What `about` wrote; raises KeyError if something of it is missing."""
    return {name: record[name] for name in ABOUT}


def credit(advantage: float | None, weight: float) -> float:
    """What a trained token is worth: its rollout's advantage times the row's weight."""
    return (advantage or 0.0) * weight
