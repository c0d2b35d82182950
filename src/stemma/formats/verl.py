"""Preset `verl`: an `AgentLoopOutput` a line, which is what verl's agent loops give its trainer.

    prompt_ids, response_ids, response_mask, response_logprobs   mask and logprobs are the response's
    reward_score     the rollout's reward
    num_turns        how many calls the row trains
    extra_fields     uid (the group), rollout_id, weight, advantage, sampler, policy versions

An agent loop gives one output for each sample of a prompt, so a rollout is one row: of a split one the row that trains
most; the calls of the others are counted as left out (`split`). `tests/formats/test_token_presets.py` reads it back.
"""

from typing import Any

from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Place, Records, TokenPreset, about, facts_in, from_parts, parts_of


def _layout(rows: list[TokenRow], place: Place) -> Records:
    return [_record(row) for row in rows]


def _record(row: TokenRow) -> dict[str, Any]:
    parts, extra = parts_of(row), about(row)
    return {
        "prompt_ids": parts.prompt,
        "response_ids": parts.response,
        "response_mask": parts.mask,
        "response_logprobs": parts.logprobs,
        "reward_score": extra.pop("reward"),
        "num_turns": len(row.spans),
        "metrics": {},
        "extra_fields": {
            "uid": extra.pop("group_id"),
            **extra,
            "calls": [span.call for span in row.spans],
            "policy": [[one.start, one.version] for one in row.policy],
        },
    }


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    extra = record["extra_fields"]
    facts = facts_in({**extra, "group_id": extra["uid"], "reward": record["reward_score"]})
    facts |= {"calls": extra["calls"], "policy": extra["policy"]}
    faults = [] if record["num_turns"] == len(extra["calls"]) else ["its num_turns is not the number of its calls"]
    prompt, response, mask = record["prompt_ids"], record["response_ids"], record["response_mask"]
    return [from_parts(prompt, response, mask, record["response_logprobs"], facts, faults)]


VERL = TokenPreset(name="verl", layout=_layout, read=_read, needs_logprobs=True, one_row=True)
