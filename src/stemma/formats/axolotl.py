"""Presets `axolotl` and `axolotl-turns`: rows for axolotl's `type: chat_template`, each turn with its own train flag.

    {"messages": [{"role", "content", "train", …}], "tools": "JSON text"}

    train               on every message, true for the trained ones only; axolotl asks no role where the flag stands
    reasoning_content   on a message that has reasoning; a template that does not know the field leaves it out
    tool_calls          arguments as the JSON text that was received: axolotl parses it before the template sees it, so
                        no number passes through the parser of `datasets`, which bends some
    tools               JSON text, "[]" for none: a column of nulls has no type, and axolotl cannot parse ""

Messages have the keys they need and no others, and the first row carries one key more, so that `datasets` keeps them
as they are (`stemma.formats.trl` tells why). A row ends with its last trained message. A row is left out, with its
reason, if it holds what a text template cannot say (images) or arguments that are no JSON object (axolotl would stop
there).

`axolotl.yml` lies beside the rows. It names every field, since axolotl otherwise passes on only those that it finds in
the template, and makes a row that is too long an error, since axolotl otherwise drops it.
`HERMES_MAPPING` is the same for rows of the preset `hermes`, whose turns have the same flag.

Some templates do not leave history as it was: Qwen 3's drops the thoughts of turns before the last question, so that
those turns are trained without them; Gemma 4's and Command A's write tool results into the model's turn, where axolotl
takes them for part of it and trains them. For such templates there is `axolotl-turns`: a row for each trained
message, which is its last. Each prefix is then repeated and computed as often as it has replies. Where no user has
spoken, Qwen 3's drops thoughts there, too; `stemma export --tokenizer` reports what a template drops.

Not covered: templates without tools (axolotl's chatml, llama3) train a call as an empty turn or not at all, and a
`<think>` that the template writes of itself is not trained.
`tests/trainers/axolotl` decodes axolotl's labels and compares them with the trained messages.
"""

from typing import Any

from stemma.formats.export import Preset, Written, compact_json
from stemma.formats.openai import raw_markers, text_differences, text_messages
from stemma.formats.training import TrainingRow
from stemma.formats.trl import NotedLines

CONFIG = """\
# For rows of `stemma export --for axolotl` or `axolotl-turns`: copy this into your axolotl config.
datasets:
  - path: {data_file}  # as seen from where axolotl is started
    ds_type: json
    type: chat_template
    field_messages: messages
    message_property_mappings:
      role: role
      content: content
      reasoning_content: reasoning_content
      tool_calls: tool_calls
      tool_call_id: tool_call_id
      name: name
    message_field_training: train  # a turn is trained if it says so ...
    roles_to_train: []  # ... and none because of its role
    train_on_eos: turn  # with a trained turn its end is trained
train_on_inputs: false
excess_length_strategy: raise  # a row longer than sequence_len is an error; axolotl would drop it
# eot_tokens: ["<|im_end|>"]  # if the template ends turns with another token than the tokenizer's eos_token
"""

HERMES_MAPPING = """\
# For rows of `stemma export --for hermes`: copy this into your axolotl config.
datasets:
  - path: {data_file}  # as seen from where axolotl is started
    ds_type: json
    type: chat_template
    field_messages: conversations
    message_property_mappings:
      role: from
      content: value
    roles:
      system: [system]
      user: [human, tool]  # the text of a tool turn has its <tool_response> tags already
      assistant: [gpt]
    message_field_training: train  # a turn is trained if it says so ...
    roles_to_train: []  # ... and none because of its role
    train_on_eos: turn
train_on_inputs: false
excess_length_strategy: raise  # a row longer than sequence_len is an error; axolotl would drop it
"""


def axolotl_row(row: TrainingRow) -> list[Written]:
    """The row with a flag on every message."""
    trained = set(row.trained)
    messages = text_messages(row)
    for at, message in enumerate(messages):
        message["train"] = at in trained
    record = {"messages": messages, "tools": compact_json(row.tools or [])}
    return [Written(record, row.trained, text_differences(row))]


def turn_rows(row: TrainingRow) -> list[Written]:
    """A row for each trained message, which ends it."""
    (whole,) = axolotl_row(row)
    messages = whole.record["messages"]
    return [
        Written({**whole.record, "messages": _only_last_trained(messages[: at + 1])}, (at,), text_differences(row, at))
        for at in row.trained
    ]


def _only_last_trained(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*({**message, "train": False} for message in messages[:-1]), messages[-1]]


def hermes_mapping(data_file: str) -> dict[str, str]:
    """What lies beside rows of the preset `hermes`, so that axolotl loads them."""
    return {"axolotl.yml": HERMES_MAPPING.format(data_file=compact_json(data_file))}


def _sidecars(data_file: str) -> dict[str, str]:
    # JSON text is YAML too: a file may have any name.
    return {"axolotl.yml": CONFIG.format(data_file=compact_json(data_file))}


AXOLOTL = Preset(name="axolotl", convert=axolotl_row, sidecars=_sidecars, open_sink=NotedLines, markers=raw_markers)
AXOLOTL_TURNS = Preset(
    name="axolotl-turns", convert=turn_rows, sidecars=_sidecars, open_sink=NotedLines, markers=raw_markers
)
