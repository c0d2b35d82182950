"""Preset `atropos`: one `ScoredDataGroup` a line, as Atropos' API takes it from an environment.

    tokens, masks         masks are the ids where trained and -100 elsewhere
    inference_logprobs    1.0 where untrained, as Atropos marks it
    scores                the reward of the row's rollout
    advantages            one for each token: the group-relative advantage times the row's weight, 0 where untrained
    overrides             for each row: rollout_id, weight, on_policy, sampler …

A group is all rollouts of one prompt. A rollout that was split has several rows with the same score; advantages were
computed over rollouts and carry the weight, so a trainer that uses them counts it once.

Atropos makes a batch of whole groups: groups of equal size are put together until they have as many rows as the largest
group, and what cannot be put together so waits for ever. So sizes are powers of two, and where some groups of a size
would be left over these have the size of the largest. What is missing is filled with rows that train nothing: masked,
of advantage 0, their score the mean of the group's. A batch size that is a multiple of the largest group takes all.
`tests/trainers/atropos` posts the groups to Atropos' own server.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Place, Records, TokenPreset, about, credit, facts_in, written_row

_MASKED = 1.0
"""Atropos' logprob of a token that was not sampled."""


def _layout(rows: list[TokenRow], place: Place) -> Records:
    group = {
        "tokens": [unpack_ids(row.ids).tolist() for row in rows],
        "masks": [unpack_ids(row.labels()).tolist() for row in rows],
        "scores": [row.standing.reward for row in rows],
        "advantages": [_advantages(row) for row in rows],
        "ref_logprobs": None,
        "messages": None,
        "generation_params": None,
        "inference_logprobs": [_logprobs(row) for row in rows],
        "group_overrides": {"group_id": rows[0].standing.group},
        "overrides": [about(row) for row in rows],
        "images": None,
    }
    return [group]


def _advantages(row: TokenRow) -> list[float]:
    one = credit(row.standing.advantage, row.weight)
    return [one if on else 0.0 for on in row.mask()]


def _logprobs(row: TokenRow) -> list[float]:
    return [one if on else _MASKED for one, on in zip(unpack_logprobs(row.logprobs()), row.mask(), strict=True)]


def _read(group: dict[str, Any]) -> list[WrittenRow]:
    names = ("tokens", "masks", "inference_logprobs", "overrides", "scores", "advantages")
    named = group["group_overrides"]["group_id"]
    return [_row(named, *columns) for columns in zip(*(group[name] for name in names), strict=True)]


def _row(
    group: str,
    ids: list[int],
    masks: list[int],
    logprobs: list[float],
    override: dict[str, Any],
    score: float,
    advantages: list[float],
) -> WrittenRow:
    facts = facts_in(override)
    one = credit(facts["advantage"], facts["weight"])
    wrong = {
        "score": score != facts["reward"],
        "advantages": advantages != [0.0 if mask < 0 else one for mask in masks],
        "group_id": group != facts["group_id"],
    }
    faults = [f"its {name} does not fit its overrides" for name, is_wrong in wrong.items() if is_wrong]
    return written_row(ids, masks, _plain(masks, logprobs), facts, faults)


def _plain(masks: list[int], logprobs: list[float]) -> list[float | None]:
    """Zero where it is marked as masked, so that nothing else can stand there unseen."""
    return [0.0 if mask < 0 and one == _MASKED else one for mask, one in zip(masks, logprobs, strict=True)]


def _sizes(rows: Sequence[int]) -> list[int]:
    """Powers of two, of which those that are less than the largest come in whole packs.

    >>> _sizes([3, 2, 2, 1, 2])
    [4, 2, 2, 4, 4]
    """
    powers = [1 << (number - 1).bit_length() for number in rows]
    largest, left = max(powers), Counter(powers)
    packed = {size: count - count % (largest // size) for size, count in left.items()}
    found = []
    for size in powers:
        packed[size] -= 1
        found.append(size if packed[size] >= 0 else largest)
    return found


ATROPOS = TokenPreset(
    name="atropos",
    layout=_layout,
    read=_read,
    rows_in=lambda group: len(group["tokens"]),
    needs_logprobs=True,
    needs_reward=True,
    sizes=_sizes,
)
