"""Preset `tinker`: a `Datum` a line, shifted by one token, with the provenance of every token.

    model_input             the ids but the last
    loss_fn_inputs          target_tokens (the ids but the first), logprobs, advantages, weights; 0 where untrained
    model_input_spans       which call sampled a run of the input, or which call's prompt it stands in, and where
    loss_fn_input_spans     the same of the targets

The advantage of a token is that of its rollout times the row's weight; `weights` is the row's weight where trained.
What is written is what `Datum(…).with_provenance(…)` takes. `tests/trainers/tinker` builds the SDK's own objects.
"""

from itertools import pairwise
from typing import Any

from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.core.proof import IGNORED, WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Records, TokenPreset, about, written_row


def _write(rows: list[TokenRow]) -> Records:
    return [_record(row) for row in rows]


def _record(row: TokenRow) -> dict[str, Any]:
    ids, mask = unpack_ids(row.ids).tolist(), row.mask()[1:]
    credit = (row.standing.advantage or 0.0) * row.weight
    return {
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": ids[:-1]}]},
        "loss_fn_inputs": {
            "target_tokens": ids[1:],
            "logprobs": unpack_logprobs(row.logprobs()).tolist()[1:],
            "advantages": [credit if on else 0.0 for on in mask],
            "weights": [row.weight if on else 0.0 for on in mask],
        },
        "model_input_spans": _provenance(row, 0, len(ids) - 1),
        "loss_fn_input_spans": _provenance(row, 1, len(ids)),
        "metadata": about(row),
    }


def _provenance(row: TokenRow, begin: int, end: int) -> list[dict[str, Any]]:
    """Runs that tile tokens `begin` to `end`: sampled by a call, or standing in the prompt of the next one."""
    runs = []
    edges = [0, *(edge for span in row.spans for edge in (span.start, span.end))]
    for number, (first, last) in enumerate(pairwise(edges)):
        start, stop, span = max(first, begin), min(last, end), row.spans[number // 2]
        if start < stop:
            offset = start - (span.start if number % 2 else 0)
            kind = "sampled" if number % 2 else "prompt"
            runs.append({"type": kind, "sequence_id": span.call, "offset": offset, "length": stop - start})
    return runs


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    inputs = record["loss_fn_inputs"]
    targets = inputs["target_tokens"]
    ids = [record["model_input"]["chunks"][0]["tokens"][0], *targets]
    if record["model_input"]["chunks"][0]["tokens"] != ids[:-1]:
        ids = record["model_input"]["chunks"][0]["tokens"]  # not shifted by one: the proof will say so
    labels = [
        IGNORED,
        *(token if weight else IGNORED for token, weight in zip(targets, inputs["weights"], strict=True)),
    ]
    return [written_row(ids, labels, [0.0, *inputs["logprobs"]])]


TINKER = TokenPreset(name="tinker", write=_write, read=_read, needs_logprobs=True, needs_reward=True)
