"""Preset `tokens`: whole rows of ids with labels, for TRL's SFT trainer and for anything that takes `input_ids`.

    input_ids, attention_mask, labels   labels are the ids where trained and -100 elsewhere
    logprobs                            as the engine gave them; 0 where untrained, NaN (null in JSON) where not given
    rollout_id, group_id, weight, reward, advantage, on_policy, model
    temperature, top_p                  those of all calls of the row; null if they differ or are not known
    constrained                         whether a grammar, a schema or a required tool left a call fewer choices
    finish_reason                       of the last call
    calls, starts, ends                 which call sampled which tokens
    policy_starts, policy_versions      from which token on which version of the policy sampled

Written as Parquet (`pip install 'stemmata[columns]'`) or, if the output is named so, as JSON lines.
`tests/formats/test_token_presets.py` reads both back.
"""

from typing import Any

from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.core.proof import WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Place, Records, TokenPreset, about, facts_in, written_row

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
    "temperature": "double",
    "top_p": "double",
    "constrained": "bool",
    "finish_reason": "string",
    "calls": "list<string>",
    "starts": "list<int32>",
    "ends": "list<int32>",
    "policy_starts": "list<int32>",
    "policy_versions": "list<string>",
}
_SPANS = ("calls", "starts", "ends", "policy_starts", "policy_versions")


def _layout(rows: list[TokenRow], place: Place) -> Records:
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
    ids = record["input_ids"]
    faults = [] if record["attention_mask"] == [1] * len(ids) else ["its attention_mask hides tokens"]
    facts = {**facts_in(record), **{name: record[name] for name in _SPANS}}
    return [written_row(ids, record["labels"], record["logprobs"], facts, faults)]


TOKENS = TokenPreset(name="tokens", layout=_layout, read=_read, columns=COLUMNS)
