"""Preset `slime`: a `Sample` a line.

    tokens, response_length                all ids, and how many of them from the first trained one on: the response
    loss_mask, rollout_log_probs           the response's
    group_index, index, rollout_id         rows of one rollout share `rollout_id`, so that its loss is counted once
    reward, weight_versions, status, metadata

`tests/formats/test_token_presets.py` reads it back.
"""

from typing import Any

from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Records, TokenPreset, about, from_parts, parts_of


def _write(rows: list[TokenRow]) -> Records:
    return [_record(row, index) for index, row in enumerate(rows)]


def _record(row: TokenRow, index: int) -> dict[str, Any]:
    parts, rest = parts_of(row), about(row)
    return {
        "group_index": rest.pop("group_id"),
        "index": index,
        "rollout_id": rest.pop("rollout_id"),
        "tokens": [*parts.prompt, *parts.response],
        "response_length": len(parts.response),
        "reward": rest.pop("reward"),
        "loss_mask": parts.mask,
        "rollout_log_probs": parts.logprobs,
        "weight_versions": [one.version for one in row.policy],
        "status": "completed",
        "metadata": rest,
    }


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    cut = len(record["tokens"]) - record["response_length"]
    tokens, mask, logprobs = record["tokens"], record["loss_mask"], record["rollout_log_probs"]
    return [from_parts(tokens[:cut], tokens[cut:], mask, logprobs)]


SLIME = TokenPreset(name="slime", write=_write, read=_read, needs_logprobs=True)
