"""The presets `hermes` and `sharegpt`: trajectories as such, one conversation a line.

Neither format can say that a turn of the model is context and not to be trained. So each row lists in `trained_turns`
the turns that were sampled in exactly this context; a trainer that takes all gpt turns trains the others off-policy,
and which trainers take these rows at all is said in the sidecar. `tests/formats/test_trajectory_presets.py` proves it.
"""

from typing import Any

from stemma.formats.axolotl import hermes_mapping
from stemma.formats.entries import Columns, shaped_metadata
from stemma.formats.export import Preset
from stemma.formats.hermes import sharegpt_entry
from stemma.formats.training import TrainingRow

_README = """# {file}

Trajectories in the Hermes form: `from` is system, human, gpt or tool; reasoning stands in <think>, calls in
<tool_call>, results in <tool_response>. `trained_turns` lists the gpt turns sampled in exactly this context.

axolotl takes these rows with the mapping in `axolotl.yml`. TRL, LLaMA-Factory and unsloth do not: export with
`--for trl`, `--for llamafactory` or `--for unsloth` instead.
"""


def _hermes(row: TrainingRow) -> dict[str, Any]:
    return {"conversations": row.turns(), **_about(row, row.turns())}


def _sharegpt(row: TrainingRow) -> dict[str, Any]:
    entry = sharegpt_entry(row.messages, row.tools)
    return {**entry, **_about(row, entry["conversations"])}


def _about(row: TrainingRow, turns: list[dict[str, str]]) -> dict[str, Any]:
    replies = [i for i, message in enumerate(row.messages) if message.get("role") == "assistant"]
    gpt_turns = [i for i, turn in enumerate(turns) if turn["from"] == "gpt"]
    trained = set(row.trained)
    return {
        "timestamp": row.timestamp,
        "model": row.model,
        "completed": row.completed,
        "metadata": shaped_metadata(row.metadata, Columns()),
        "trained_turns": [turn for reply, turn in zip(replies, gpt_turns, strict=True) if reply in trained],
    }


def _sidecars(file: str) -> dict[str, str]:
    return {"README.md": _README.format(file=file), **hermes_mapping(file)}


HERMES = Preset(name="hermes", convert=_hermes, sidecars=_sidecars)
SHAREGPT = Preset(name="sharegpt", convert=_sharegpt)
