"""Preset `tokens`: whole rows of ids with labels, for TRL's SFT trainer and for anything that takes `input_ids`.

    input_ids, attention_mask, labels   labels are the ids where trained and -100 elsewhere
    logprobs                            as the engine gave them; 0 where untrained, NaN (null in JSON) where not given
    rollout_id, group_id, weight, reward, advantage, on_policy, model
    calls, starts, ends                 which call sampled which tokens
    policy_starts, policy_versions      from which token on which version of the policy sampled

Written as Parquet (`pip install 'stemmata[columns]'`) or, if the output is named so, as JSON lines.
`tests/formats/test_token_presets.py` reads both back.
"""

from typing import Any

from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Records, TokenPreset, about, written_row

COLUMNS = {
    "input_ids": "list<int32>",
    "attention_mask": "list<int8>",
    "labels": "list<int32>",
    "logprobs": "list<float>",
    "rollout_id": "string",
    "group_id": "string",
    "weight": "double",
    "reward": "double",
    "advantage": "double",
    "on_policy": "bool",
    "model": "string",
    "calls": "list<string>",
    "starts": "list<int32>",
    "ends": "list<int32>",
    "policy_starts": "list<int32>",
    "policy_versions": "list<string>",
}


def _write(rows: list[TokenRow]) -> Records:
    return [_record(row) for row in rows]


def _record(row: TokenRow) -> dict[str, Any]:
    ids = unpack_ids(row.ids).tolist()
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": unpack_ids(row.labels()).tolist(),
        "logprobs": unpack_logprobs(row.logprobs()).tolist(),
        **about(row),
        "calls": [span.call for span in row.spans],
        "starts": [span.start for span in row.spans],
        "ends": [span.end for span in row.spans],
        "policy_starts": [span.start for span in row.policy],
        "policy_versions": [span.version for span in row.policy],
    }


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    return [written_row(record["input_ids"], record["labels"], record["logprobs"])]


TOKENS = TokenPreset(name="tokens", write=_write, read=_read, columns=COLUMNS)
