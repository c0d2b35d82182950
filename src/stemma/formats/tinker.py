"""Preset `tinker`: a `Datum` a line, shifted by one token, with the provenance of every token.

    model_input             the ids but the last
    loss_fn_inputs          target_tokens (the ids but the first), logprobs, advantages, weights; 0 where untrained
    model_input_spans       which call sampled a run of the input, or which call's prompt it stands in, and where
    loss_fn_input_spans     the same of the targets

The advantage of a token is that of its rollout times the row's weight; `weights` is the row's weight where trained.
What is written is what `Datum(…).with_provenance(…)` takes. `tests/trainers/tinker` builds the SDK's own objects.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.core.proof import IGNORED, WrittenRow
from stemma.core.receipts import Span
from stemma.core.token_rows import TokenRow
from stemma.formats.token_preset import Place, Records, TokenPreset, about, credit, facts_in, written_row


def _layout(rows: list[TokenRow], place: Place) -> Records:
    return [_record(row) for row in rows]


def _record(row: TokenRow) -> dict[str, Any]:
    ids, mask = unpack_ids(row.ids).tolist(), row.mask()[1:]
    share = credit(row.standing.advantage, row.weight)
    return {
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": ids[:-1]}]},
        "loss_fn_inputs": {
            "target_tokens": ids[1:],
            "logprobs": unpack_logprobs(row.logprobs()).tolist()[1:],
            "advantages": [share if on else 0.0 for on in mask],
            "weights": [row.weight if on else 0.0 for on in mask],
        },
        "model_input_spans": _provenance(row.spans, 0, len(ids) - 1),
        "loss_fn_input_spans": _provenance(row.spans, 1, len(ids)),
        "metadata": about(row),
    }


def _provenance(spans: Sequence[Span], begin: int, end: int) -> list[dict[str, Any]]:
    """Runs that tile tokens `begin` to `end`: sampled by a call, or standing in the prompt of the next one."""
    runs = []
    edges = [0, *(edge for span in spans for edge in (span.start, span.end))]
    for number, (first, last) in enumerate(pairwise(edges)):
        start, stop, span = max(first, begin), min(last, end), spans[number // 2]
        if start < stop:
            offset = start - (span.start if number % 2 else 0)
            kind = "sampled" if number % 2 else "prompt"
            runs.append({"type": kind, "sequence_id": span.call, "offset": offset, "length": stop - start})
    return runs


def _read(record: dict[str, Any]) -> list[WrittenRow]:
    inputs, facts = record["loss_fn_inputs"], facts_in(record["metadata"])
    [chunk] = record["model_input"]["chunks"]
    targets, weights, spans = inputs["target_tokens"], inputs["weights"], _spans(record["loss_fn_input_spans"])
    ids = [chunk["tokens"][0], *targets]
    labels = [IGNORED, *(token if weight else IGNORED for token, weight in zip(targets, weights, strict=True))]
    share, weight = credit(facts["advantage"], facts["weight"]), facts["weight"]
    wrong = {
        "model_input": chunk["tokens"] != ids[:-1],
        "advantages": inputs["advantages"] != [share if on else 0.0 for on in weights],
        "weights": any(one not in (0.0, weight) for one in weights),
        "model_input_spans": record["model_input_spans"] != _provenance(spans, 0, len(ids) - 1),
        "loss_fn_input_spans": record["loss_fn_input_spans"] != _provenance(spans, 1, len(ids)),
    }
    faults = [f"its {name} does not fit its other columns" for name, is_wrong in wrong.items() if is_wrong]
    facts |= {"calls": [one.call for one in spans], "starts": [one.start for one in spans]}
    return [written_row(ids, labels, [0.0, *inputs["logprobs"]], facts, faults)]


def _spans(runs: list[dict[str, Any]]) -> list[Span]:
    """What was sampled, from the provenance of the targets, which begin with the second token."""
    ends = accumulate((run["length"] for run in runs), initial=1)
    placed = zip(runs, pairwise(ends), strict=True)
    return [Span(run["sequence_id"], *edges) for run, edges in placed if run["type"] == "sampled"]


TINKER = TokenPreset(name="tinker", layout=_layout, read=_read, needs_logprobs=True, needs_reward=True)
