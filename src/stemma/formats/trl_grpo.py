"""Preset `trl-grpo`: what a `rollout_func` gives TRL's GRPO trainer, one row a line.

    prompt_ids, completion_ids, logprobs   logprobs are the completion's; 0 where untrained
    env_mask                               1 where trained: the model's own tokens, not tools' or users'

A trainer that replays the file reads the lines of a group and returns their columns as lists.
`tests/formats/test_token_presets.py` reads it back; `tests/trainers/trl` trains on it.
"""

from typing import Any

from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Records, TokenPreset, about, from_parts, parts_of


def _write(rows: list[TokenRow]) -> Records:
    return [_record(row) for row in rows]


def _record(row: TokenRow) -> dict[str, Any]:
    parts = parts_of(row)
    columns = {"prompt_ids": parts.prompt, "completion_ids": parts.response, "logprobs": parts.logprobs}
    return {**columns, "env_mask": parts.mask, **about(row)}


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    return [from_parts(record["prompt_ids"], record["completion_ids"], record["env_mask"], record["logprobs"])]


TRL_GRPO = TokenPreset(name="trl-grpo", write=_write, read=_read, needs_logprobs=True)
