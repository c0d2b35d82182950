"""Preset `skyrl`: a `GeneratorOutput` a line, holding the rows of one group in columns, for step-wise training.

    prompt_token_ids, response_ids, loss_masks, rollout_logprobs   a list for each row
    rewards              the reward of the row's rollout
    stop_reasons         why the row's last call ended
    trajectory_ids       instance_id is the prompt (the group), repetition_id the number of the sample (the rollout)
    is_last_step         true for the last row of a rollout
    rows                 for each row its rollout_id, weight, advantage …

Baselines are taken over the rows with equal `instance_id`, from the last step of each trajectory. A rollout that was
split has several rows, one after another, with the same ids: set `generator.step_wise_trajectories`.
`tests/formats/test_token_presets.py` reads it back.
"""

from itertools import pairwise
from typing import Any

from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Place, Records, TokenPreset, about, facts_in, from_parts, parts_of


def _layout(rows: list[TokenRow], place: Place) -> Records:
    parts = [parts_of(row) for row in rows]
    samples = {rollout: number for number, rollout in enumerate(dict.fromkeys(row.rollout for row in rows))}
    output = {
        "prompt_token_ids": [one.prompt for one in parts],
        "response_ids": [one.response for one in parts],
        "rewards": [row.standing.reward for row in rows],
        "loss_masks": [one.mask for one in parts],
        "stop_reasons": [row.finish_reason or "stop" for row in rows],
        "rollout_metrics": None,
        "rollout_logprobs": [one.logprobs for one in parts],
        "trajectory_ids": [{"instance_id": row.standing.group, "repetition_id": samples[row.rollout]} for row in rows],
        "is_last_step": [*(one.rollout != after.rollout for one, after in pairwise(rows)), True],
        "rows": [about(row) for row in rows],
    }
    return [output]


def _read(output: dict[str, Any]) -> list[WrittenRow]:
    names = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs", "rows")
    faults = _faults(output, output["rows"])
    return [
        from_parts(prompt, response, mask, logprobs, facts_in(row), faults)
        for prompt, response, mask, logprobs, row in zip(*(output[name] for name in names), strict=True)
    ]


def _faults(output: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """Where the columns that the trainer reads say something else than `rows`."""
    rollouts = [row["rollout_id"] for row in rows]
    samples = list(dict.fromkeys(rollouts))
    expected = {
        "rewards": [row["reward"] for row in rows],
        "stop_reasons": [row["finish_reason"] or "stop" for row in rows],
        "trajectory_ids": [
            {"instance_id": row["group_id"], "repetition_id": samples.index(row["rollout_id"])} for row in rows
        ],
        "is_last_step": [*(one != after for one, after in pairwise(rollouts)), True],
    }
    return [f"the {name} of its group do not fit its rows" for name in expected if output[name] != expected[name]]


SKYRL = TokenPreset(
    name="skyrl",
    layout=_layout,
    read=_read,
    rows_in=lambda output: len(output["rows"]),
    needs_logprobs=True,
    needs_reward=True,
)
