"""What a trainer that takes tokens wants: how rows look to it, and how they are read back for the proof.

Most such trainers cut a row into the prompt, which ends where the first trained token begins, and the response, in
which a mask says what is trained:

    1 2 [3] 4 [5]      prompt 1 2 · response 3 4 5 · mask 1 0 1

`tests/formats/test_token_presets.py` writes and reads back every preset.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stemma.core.call import pack_ids, pack_logprobs, unpack_ids, unpack_logprobs
from stemma.core.proof import IGNORED, WrittenRow
from stemma.core.token_rows import TokenRow

NAN = float("nan")

Records = list[dict[str, Any]]


class TokenPreset(msgspec.Struct, frozen=True, kw_only=True):
    """One trainer's layout."""

    name: str
    write: Callable[[list[TokenRow]], Records]
    """The records for the rows of one group."""
    read: Callable[[dict[str, Any]], list[WrittenRow]]
    """The rows of a record, as they were given to `write`."""
    columns: dict[str, str] | None = None
    """Its columns and their types, if it can be written as Parquet; that is then what it is unless asked otherwise."""
    needs_logprobs: bool = False
    needs_reward: bool = False

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
    """The row, cut before its first trained token."""
    cut = row.spans[0].start
    ids, logprobs = unpack_ids(row.ids).tolist(), unpack_logprobs(row.logprobs()).tolist()
    return Parts(ids[:cut], ids[cut:], list(row.mask()[cut:]), logprobs[cut:])


def from_parts(prompt: list[int], response: list[int], mask: list[int], logprobs: Sequence[float | None]) -> WrittenRow:
    """The row that was cut into these."""
    labels = [IGNORED] * len(prompt) + [token if on else IGNORED for token, on in zip(response, mask, strict=True)]
    return written_row([*prompt, *response], labels, [*[0.0] * len(prompt), *logprobs])


def written_row(ids: list[int], labels: list[int], logprobs: Sequence[float | None]) -> WrittenRow:
    """A row from plain lists; a logprob that is None was not known."""
    known = (NAN if one is None else one for one in logprobs)
    return WrittenRow(pack_ids(ids), pack_ids(labels), pack_logprobs(known))


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
    }
