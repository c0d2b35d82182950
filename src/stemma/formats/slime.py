"""Preset `slime`: a `Sample` a line.

    tokens, response_length                all ids, and how many of them from the first sampled one on: the response
    loss_mask, rollout_log_probs           the response's
    group_index, index, rollout_id         numbers; rows of one rollout share `rollout_id`, so its loss is counted once
    reward, weight_versions
    status                                 `truncated` if the last call ended with `length`, else `completed`
    metadata                               the names of group and rollout, weight, advantage, sampler …

`tests/formats/test_token_presets.py` reads it back.
"""

from typing import Any

from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Place, Records, TokenPreset, about, facts_in, from_parts, parts_of

_STATUS = {"length": "truncated", "abort": "aborted"}
"""What slime calls an end; every other one is `completed`."""


def _layout(rows: list[TokenRow], place: Place) -> Records:
    numbers = {name: place.rollout + at for at, name in enumerate(dict.fromkeys(row.rollout for row in rows))}
    return [
        {
            "group_index": place.group,
            "index": place.row + at,
            "rollout_id": numbers[row.rollout],
            **_record(row),
        }
        for at, row in enumerate(rows)
    ]


def _record(row: TokenRow) -> dict[str, Any]:
    parts = parts_of(row)
    return {
        "tokens": [*parts.prompt, *parts.response],
        "response_length": len(parts.response),
        "reward": row.standing.reward,
        "loss_mask": parts.mask,
        "rollout_log_probs": parts.logprobs,
        "weight_versions": [one.version for one in row.policy],
        "status": _STATUS.get(row.finish_reason or "", "completed"),
        "metadata": about(row),
    }


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    cut = len(record["tokens"]) - record["response_length"]
    tokens, mask, logprobs = record["tokens"], record["loss_mask"], record["rollout_log_probs"]
    about_it = facts_in(record["metadata"])
    facts = {**about_it, "policy_versions": record["weight_versions"]}
    faults = [
        *(["its status does not fit its finish_reason"] if record["status"] != _status(about_it) else []),
        *(["its reward is not that of its metadata"] if record["reward"] != about_it["reward"] else []),
    ]
    return [from_parts(tokens[:cut], tokens[cut:], mask, logprobs, facts, faults)]


def _status(facts: dict[str, Any]) -> str:
    return _STATUS.get(facts["finish_reason"] or "", "completed")


SLIME = TokenPreset(name="slime", layout=_layout, read=_read, needs_logprobs=True)
