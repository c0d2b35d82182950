"""Preset `verl`: an `AgentLoopOutput` a line, which is what verl's agent loops give its trainer.

    prompt_ids, response_ids, response_mask, response_logprobs   mask and logprobs are the response's
    reward_score     the rollout's reward
    num_turns        how many calls the row trains
    extra_fields     uid (the group), rollout_id, weight, advantage, policy versions

`tests/formats/test_token_presets.py` reads it back.
"""

from typing import Any

from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Records, TokenPreset, about, from_parts, parts_of


def _write(rows: list[TokenRow]) -> Records:
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
            "policy": [[one.start, one.version] for one in row.policy],
        },
    }


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    mask, logprobs = record["response_mask"], record["response_logprobs"]
    return [from_parts(record["prompt_ids"], record["response_ids"], mask, logprobs)]


VERL = TokenPreset(name="verl", write=_write, read=_read, needs_logprobs=True)
