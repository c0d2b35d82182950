"""Preset `trl-grpo`: what a `rollout_func` gives TRL's GRPO trainer, one row a line.

    prompt_ids, completion_ids, logprobs   logprobs are the completion's; 0 where untrained
    env_mask                               1 where trained: the model's own tokens, not tools' or users'

TRL takes exactly `num_generations` completions for each prompt. So a rollout is one row (of a split one the row that
trains most; the calls of the others are counted as left out: `split`), and all groups have the size of the largest,
which the report gives as `group_size`. Smaller groups are filled with rows whose `env_mask` is 0 and whose reward is
null, which TRL leaves out of the baseline. A trainer that replays the file reads the lines of a group and returns
their columns as lists. `tests/formats/test_token_presets.py` reads it back; `tests/trainers/trl` trains on it.
"""

from collections.abc import Sequence
from typing import Any

from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Place, Records, TokenPreset, about, facts_in, from_parts, parts_of


def _layout(rows: list[TokenRow], place: Place) -> Records:
    return [_record(row) for row in rows]


def _record(row: TokenRow) -> dict[str, Any]:
    parts = parts_of(row)
    columns = {"prompt_ids": parts.prompt, "completion_ids": parts.response, "logprobs": parts.logprobs}
    return {**columns, "env_mask": parts.mask, **about(row)}


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    prompt, completion = record["prompt_ids"], record["completion_ids"]
    return [from_parts(prompt, completion, record["env_mask"], record["logprobs"], facts_in(record))]


def _sizes(rows: Sequence[int]) -> list[int]:
    return [max(rows)] * len(rows)


TRL_GRPO = TokenPreset(name="trl-grpo", layout=_layout, read=_read, needs_logprobs=True, one_row=True, sizes=_sizes)
