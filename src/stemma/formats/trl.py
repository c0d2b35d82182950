"""Presets `trl` and `trl-turns`: rows for TRL's SFTTrainer whose loss falls on exactly the trained messages.

    {"prompt": [messages], "completion": [messages], "tools": "JSON text"}

TRL knows two masks, and takes what both leave: `completion_only_loss` (the default for such rows) and
`assistant_only_loss`. So `trl` puts all before the first trained message into the prompt, and the rest, up to the last
trained one, into the completion; with both masks on, the model's turns in the completion are trained and nothing
else. A turn of the model that is context cannot stand in a completion; there the row is split:

    S U A1 T A2            all trained           → S U | A1 T A2
    S U a1 U A2 T A3       a1 is context         → S U a1 U | A2 T A3
    S U A1 U a2 U A3       a2 is context         → S U | A1   and   S U A1 U a2 U | A3

`assistant_only_loss` needs a template that TRL can mark (about thirty families; it refuses others aloud). For those
others, `trl-turns` writes one row for each trained message, whose completion is that message alone; each prefix is
then repeated and computed as often as it has replies.

The form of the rows, measured with datasets 5.2 and TRL 1.16:
- A message has the keys it needs and no others. Padded with nulls to one shape, as Arrow structs would have it, plain
  turns break templates that ask `'tool_calls' in message` (Llama 3.1, DeepSeek, gpt-oss). As `List(Json())` a message
  stays as it is: `features.json` says so, and `train_sft.py` loads with it.
- Without it, `load_dataset("json")` infers that type only from messages with different keys in its first 10 MB, and
  otherwise fails at the first tool call after them. Hence the first message of the first row's prompt and completion
  each have one key more (`note`), which no template reads.
- `tools` is JSON text, "null" for none: a column of nulls has no type, and TRL decodes text.
- Arguments are objects: most templates write a string twice quoted. `datasets` reads such objects with a parser that
  makes 0.41 into 0.41000000000000003 (datasets#8652); `train_sft.py` gives it a better one. A whole number beyond 64
  bits stops it altogether, so such a row is left out, as is one whose arguments are no JSON object.

Other rows left out: images and other media (SFT on text would train on what was not seen), a reply to nothing (TRL
needs a prompt), a completion right after a turn of the model (TRL goes on with that turn instead of beginning one, so
that its end, or with templates such as Qwen 3's all of it, would be trained), roles that templates do not know.
Reasoning is `reasoning_content`. What a template leaves out (Qwen 2.5 reasoning, Llama 3 tool calls, Qwen 3 thoughts in
a conversation in which no user has spoken) is reported by `stemma export --tokenizer`; `train_sft.py` prints what is
trained in the first row.
`tests/trainers/trl` decodes TRL's labels and compares them with the trained messages.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from stemma.formats.export import Lines, Preset, Written, compact_json
from stemma.formats.openai import arguments_of, raw_markers, text_differences, text_messages
from stemma.formats.training import LeftOut, TrainingRow

Span = tuple[int, int]
"""A completion: its first message and its last, both trained."""

FEATURES = {
    "prompt": {"_type": "List", "feature": {"_type": "Json"}},
    "completion": {"_type": "List", "feature": {"_type": "Json"}},
    "tools": {"_type": "Value", "dtype": "string"},
    "id": {"_type": "Value", "dtype": "string"},
    "model": {"_type": "Value", "dtype": "string"},
    "finish_reason": {"_type": "Value", "dtype": "string"},
    "on_policy": {"_type": "Value", "dtype": "bool"},
    "off_policy": {"_type": "Value", "dtype": "string"},
    "metadata": {"json": {"_type": "Value", "dtype": "string"}},
}
NOTE = "one key more than other messages have, so that datasets takes messages as they are; no template reads it"

SCRIPT = """\
# python train_sft.py MODEL — written for trl 1.16 and datasets 5.2
import json, sys
from pathlib import Path
import pandas, torch
from datasets import Features, load_dataset
from trl import SFTConfig, SFTTrainer

# The parser that datasets takes from pandas would train 0.41000000000000003 where the model said 0.41.
pandas.io.json.ujson_loads, pandas.io.json.ujson_dumps = json.loads, json.dumps
here = Path(__file__).parent
features = Features.from_dict(json.loads((here / "features.json").read_text()))
rows = load_dataset("json", data_files=str(here / {data_file!r}), features=features, split="train")
# max_length=None: by default rows are cut to 1,024 tokens, and turns would be lost.
args = SFTConfig(output_dir="sft", completion_only_loss=True, assistant_only_loss={assistant_only}, max_length=None,
                 use_cpu=not torch.accelerator.is_available())
trainer = SFTTrainer(sys.argv[1], args=args, train_dataset=rows)
# What is trained in the first row: look whether the template of your model leaves anything out.
print(trainer.processing_class.decode([token for token in trainer.train_dataset[0]["labels"] if token != -100]))
trainer.train()
"""


def runs(row: TrainingRow) -> Iterator[Span]:
    """The fewest completions that hold every trained message once and no other turn of the model."""
    trained = set(row.trained)
    first = last = None
    for at, message in enumerate(row.messages):
        if at in trained:
            first, last = at if first is None else first, at
        elif message.get("role") == "assistant" and first is not None and last is not None:
            yield first, last
            first = last = None
    if first is not None and last is not None:
        yield first, last


def turns(row: TrainingRow) -> Iterator[Span]:
    """A completion for each trained message."""
    return ((at, at) for at in row.trained)


def trl_rows(row: TrainingRow, completions: Callable[[TrainingRow], Iterator[Span]] = runs) -> list[Written]:
    """The row as TRL loads it, split where one row cannot say what is trained."""
    if row.trained[0] == 0:
        raise LeftOut("no prompt", "the first message is trained, and TRL needs something before it")
    messages = text_messages(row)
    for at, message in enumerate(messages):
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = _object(call, at)
    tools = compact_json(row.tools or None)
    return [
        Written(
            {"prompt": _prompt(messages, first), "completion": messages[first : last + 1], "tools": tools},
            tuple(at for at in row.trained if first <= at <= last),
            text_differences(row, last),
        )
        for first, last in completions(row)
    ]


def _prompt(messages: list[dict[str, Any]], end: int) -> list[dict[str, Any]]:
    if messages[end - 1]["role"] == "assistant":
        raise LeftOut("reply after a reply", f"message {end - 1}: TRL would go on with it and train its end")
    return messages[:end]


def _object(call: dict[str, Any], at: int) -> dict[str, Any]:
    arguments = arguments_of(call, at)
    if not _loads(arguments):
        raise LeftOut("arguments that datasets cannot read", f"message {at}: {call['function']['arguments']:.80}")
    return arguments


def _loads(value: Any) -> bool:
    """Whether the parser of `datasets` takes it: numbers of 64 bits, and not a thousand levels."""
    rest = [(value, 0)]
    while rest:
        part, depth = rest.pop()
        if depth > 500 or (isinstance(part, int) and not -(2**63) <= part < 2**64):
            return False
        if isinstance(part, dict | list):
            rest += [(inner, depth + 1) for inner in (part.values() if isinstance(part, dict) else part)]
    return True


class NotedLines(Lines):
    """One JSON object a line; the first tells `datasets` that messages differ in their keys."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._first = True

    def write(self, row: Mapping[str, Any]) -> bytes:
        if self._first:
            self._first = False
            row = {name: _noted(value) if isinstance(value, list) else value for name, value in row.items()}
        return super().write(row)


def _noted(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**messages[0], "note": NOTE}, *messages[1:]]


def _sidecars(assistant_only: bool) -> Callable[[str], dict[str, str]]:
    def files(data_file: str) -> dict[str, str]:
        script = SCRIPT.format(data_file=data_file, assistant_only=assistant_only)
        return {"features.json": json.dumps(FEATURES, indent=2) + "\n", "train_sft.py": script}

    return files


TRL = Preset(name="trl", convert=trl_rows, sidecars=_sidecars(True), open_sink=NotedLines, markers=raw_markers)
TRL_TURNS = Preset(
    name="trl-turns",
    convert=lambda row: trl_rows(row, turns),
    sidecars=_sidecars(False),
    open_sink=NotedLines,
    markers=raw_markers,
)
