"""Preset `atropos`: one `ScoredDataGroup` a line, as Atropos' API takes it from an environment.

    tokens, masks         masks are the ids where trained and -100 elsewhere
    inference_logprobs    1.0 where untrained, as Atropos marks it
    scores                the reward of the row's rollout
    advantages            one for each token: the group-relative advantage times the row's weight, 0 where untrained
    overrides             for each row: rollout_id, weight, on_policy

A group is all rollouts of one prompt. A rollout that was split has several rows with the same score; advantages were
computed over rollouts and carry the weight, so a trainer that uses them counts it once. Atropos makes batches of groups
whose sizes are powers of two; a group that splitting has given another size waits in its queue.
`tests/trainers/atropos` posts the groups to Atropos' own server.
"""

from typing import Any

from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Records, TokenPreset, written_row

_MASKED = 1.0
"""Atropos' logprob of a token that was not sampled."""


def _write(rows: list[TokenRow]) -> Records:
    if not rows:
        return []
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
        "overrides": [_override(row) for row in rows],
        "images": None,
    }
    return [group]


def _advantages(row: TokenRow) -> list[float]:
    one = (row.standing.advantage or 0.0) * row.weight
    return [one if on else 0.0 for on in row.mask()]


def _logprobs(row: TokenRow) -> list[float]:
    return [one if on else _MASKED for one, on in zip(unpack_logprobs(row.logprobs()), row.mask(), strict=True)]


def _override(row: TokenRow) -> dict[str, Any]:
    return {"rollout_id": row.rollout, "weight": row.weight, "on_policy": row.on_policy}


def _read(group: dict[str, Any]) -> list[WrittenRow]:
    columns = zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True)
    return [written_row(ids, masks, _plain(masks, logprobs)) for ids, masks, logprobs in columns]


def _plain(masks: list[int], logprobs: list[float]) -> list[float | None]:
    """Zero where it is marked as masked, so that nothing else can stand there unseen."""
    return [0.0 if mask < 0 and one == _MASKED else one for mask, one in zip(masks, logprobs, strict=True)]


ATROPOS = TokenPreset(name="atropos", write=_write, read=_read, needs_logprobs=True, needs_reward=True)
