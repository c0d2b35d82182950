"""Datums as the objects of tinker's own SDK, provenance included."""

import msgspec
import pytest

from stemma.core.exclusions import Rules
from stemma.core.token_calls import captured
from stemma.core.token_rows import Standing, plan_rows
from stemma.formats.token_presets import token_preset
from token_conversations import Chat, user


def test_a_record_becomes_a_datum_whose_provenance_tiles_it():
    from tinker import types

    chat = Chat(user("hi there")).says("hello").hears("and").says("yes indeed")
    chat.graph[0]["content"] = "ho"
    plan = plan_rows(
        "r", captured(chat.hears("so").says("well").graph), Rules(), Standing(group="g", reward=1.0, advantage=2.0)
    )
    kinds = {"prompt": types.PromptProvenanceSpan, "sampled": types.SampledProvenanceSpan}
    for record in token_preset("tinker").write(plan.rows):
        record = msgspec.json.decode(msgspec.json.encode(record))
        spans = [
            [kinds[run.pop("type")](**run) for run in record[name]]
            for name in ("model_input_spans", "loss_fn_input_spans")
        ]
        datum = types.Datum(
            model_input=types.ModelInput.model_validate(record["model_input"]), loss_fn_inputs=record["loss_fn_inputs"]
        ).with_provenance(model_input=spans[0], loss_fn_inputs=spans[1])
        targets = datum.loss_fn_inputs["target_tokens"].to_numpy()
        weights = datum.loss_fn_inputs["weights"].to_numpy()
        sampled = [i for i, run in enumerate(_tiled(spans[1])) if isinstance(run, types.SampledProvenanceSpan)]
        assert list(weights.nonzero()[0]) == sampled
        assert datum.model_input.to_ints()[1:] == list(targets[:-1])
        assert datum.loss_fn_inputs["advantages"].to_numpy().max() == pytest.approx(2.0 * weights.max())


def _tiled(runs):
    return [run for run in runs for _ in range(run.length)]
