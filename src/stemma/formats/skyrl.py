"""Preset `skyrl`: a `GeneratorOutput` a line, holding the rows of one group in columns.

    prompt_token_ids, response_ids, loss_masks, rollout_logprobs   a list for each row
    rewards              the reward of the row's rollout
    trajectory_ids       its rollout and its number among that rollout's rows
    is_last_step         true for the last row of a rollout
    weights, advantages, group_id

`tests/formats/test_token_presets.py` reads it back.
"""

from typing import Any

from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Records, TokenPreset, from_parts, parts_of


def _write(rows: list[TokenRow]) -> Records:
    if not rows:
        return []
    parts = [parts_of(row) for row in rows]
    rollouts = [row.rollout for row in rows]
    steps = [rollouts[:number].count(rollout) for number, rollout in enumerate(rollouts)]
    output = {
        "prompt_token_ids": [one.prompt for one in parts],
        "response_ids": [one.response for one in parts],
        "rewards": [row.standing.reward for row in rows],
        "loss_masks": [one.mask for one in parts],
        "stop_reasons": None,
        "rollout_metrics": None,
        "rollout_logprobs": [one.logprobs for one in parts],
        "trajectory_ids": [
            {"instance_id": name, "repetition_id": step} for name, step in zip(rollouts, steps, strict=True)
        ],
        "is_last_step": [row.rollout not in rollouts[number + 1 :] for number, row in enumerate(rows)],
        "weights": [row.weight for row in rows],
        "advantages": [row.standing.advantage for row in rows],
        "group_id": rows[0].standing.group,
    }
    return [output]


def _read(output: dict[str, Any]) -> list[WrittenRow]:
    names = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs")
    return [from_parts(*columns) for columns in zip(*(output[name] for name in names), strict=True)]


SKYRL = TokenPreset(name="skyrl", write=_write, read=_read, needs_logprobs=True, needs_reward=True)
