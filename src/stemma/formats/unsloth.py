"""Preset `unsloth`: `{"conversations": [{"role", "content"}, …]}`, as unsloth's `standardize_sharegpt` accepts it.

It knows system, user and assistant, and exactly two keys, both text. What a chat template writes for tools is
therefore written here, as Hermes text:

    tools offered    the function-calling prompt, after the conversation's own system text
    a tool call      `<tool_call>` in the assistant's content
    tool results     one user turn of `<tool_response>` blocks, each JSON in which control markers are sealed
    reasoning        `<think>` before the content, where there was any; no empty block is put into the model's mouth

`train_on_responses_only` trains every assistant turn, so a row in which one is context, before the last trained
turn, cannot be said in this format and is left out: export it for trl or axolotl, which can. So are images and other
media, arguments that are no JSON object, and a result that answers no call.

`tests/trainers/trl/test_unsloth.py` runs unsloth's own `standardize_data_formats` and `train_on_responses_only`.
Not covered: the training itself, which needs a GPU; and templates that drop `<think>` from all but the last turn, as
Qwen3's does, for which the sampled reasoning of earlier turns is then not trained.
"""

from typing import Any

from stemma.formats.export import Preset, Written
from stemma.formats.hermes import REWRITTEN, is_respelled, system_prompt, to_trajectory
from stemma.formats.markers import find_markers, is_generated
from stemma.formats.openai import text_differences, text_messages
from stemma.formats.training import LeftOut, TrainingRow

Turn = dict[str, str]

SCRIPT = """\
# Cells for a notebook, written for unsloth 2026.10. MODEL and the length are yours to choose.
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
from unsloth.chat_templates import standardize_sharegpt, train_on_responses_only

model, tokenizer = FastLanguageModel.from_pretrained("MODEL", max_seq_length=32768)
model = FastLanguageModel.get_peft_model(model)
rows = standardize_sharegpt(load_dataset("json", data_files={data_file!r}, split="train"))
rows = rows.map(lambda row: {{"text": tokenizer.apply_chat_template(row["conversations"], tokenize=False)}})
args = SFTConfig(output_dir="sft", dataset_text_field="text", max_length=32768)
trainer = SFTTrainer(model=model, processing_class=tokenizer, train_dataset=rows, args=args)
trainer = train_on_responses_only(trainer)  # every assistant turn, and nothing else
trainer.train()
"""


TOOLS_AS_TEXT = "tools written into the system prompt"
"""How its context differs from what the model saw."""


_ROLES = {"system": "system", "human": "user", "tool": "user", "gpt": "assistant"}


def unsloth_row(row: TrainingRow) -> list[Written]:
    """The row as turns of text."""
    messages = text_messages(row)
    _all_trained(messages, row.trained)
    turns = _turns(messages)
    with_tools = _with_tools(turns, row.tools)
    differs = text_differences(row) + ((TOOLS_AS_TEXT,) if with_tools is not turns else ())
    if any(is_respelled(row.messages[reply.at]) for reply in row.replies):
        differs += (REWRITTEN,)
    record = {"conversations": [{"role": _ROLES[turn["from"]], "content": turn["value"]} for turn in with_tools]}
    # Scanned as a trajectory, in which tool results are told from what a user says.
    scanned = [{"from": "system", "value": system_prompt(row.tools)}, *turns]
    return [Written(record, row.trained, differs, scanned)]


def _all_trained(messages: list[dict[str, Any]], trained: tuple[int, ...]) -> None:
    context = [at for at, m in enumerate(messages) if m["role"] == "assistant" and at not in trained]
    if context:
        raise LeftOut(
            "context turn of the model",
            f"message {context[0]} is not trained, and unsloth trains every assistant turn; take trl or axolotl",
        )


def _turns(messages: list[dict[str, Any]]) -> list[Turn]:
    turns: list[Turn] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if message["role"] == "tool":
            raise LeftOut("result without a call", f"message {at - 1} is a tool's, and no call stands before it")
        turns.append(to_trajectory([message], style="sharegpt")[0])
        first = at
        while message.get("tool_calls") and at < len(messages) and messages[at]["role"] == "tool":
            at += 1
        if at > first:
            # Only here, and in JSON: raw text of several results in one turn could not be told apart.
            turns.append(to_trajectory([message, *messages[first:at]])[-1])
    return turns


def _with_tools(turns: list[Turn], tools: list[dict[str, Any]] | None) -> list[Turn]:
    """The turns, with the tools offered in the system turn, unless it is the Hermes prompt and names them already."""
    own = turns[0]["value"] if turns[0]["from"] == "system" else ""
    if not tools or is_generated(own):
        return turns
    content = "\n\n".join(text for text in (own, system_prompt(tools)) if text)
    return [{"from": "system", "value": content}, *(turns[1:] if turns[0]["from"] == "system" else turns)]


def _sidecars(data_file: str) -> dict[str, str]:
    return {"train_unsloth.py": SCRIPT.format(data_file=data_file)}


UNSLOTH = Preset(name="unsloth", convert=unsloth_row, sidecars=_sidecars, markers=find_markers)
