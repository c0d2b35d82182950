"""What a trainer would train on, read from the written rows alone by that trainer's own rule.

    trl                    assistant messages of `completion` (completion_only_loss and assistant_only_loss together)
    trl-turns              everything in `completion` (completion_only_loss)
    axolotl, -turns        messages with `train` true, of whatever role
    hermes, sharegpt       turns with `train` true, as the mapping beside the rows asks for (`message_field_training`);
                           older files list their `trained_turns`
    openai                 assistant messages whose weight is not 0
    llamafactory           every gpt and function_call turn (`mask_history: false`)
    llamafactory-turns     the last turn (`mask_history: true`)
    unsloth                every assistant turn (`train_on_responses_only`)
    parquet                the messages numbered in `trained`

For tokens see `token_rows`. Nothing here knows how rows are made: each reader knows the documented layout of its
format, and says so aloud if a row does not have it.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truth.shapes import MARK, ToolCall

THINK = re.compile(r"</?think>")
CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)

TEXT_PRESETS = ("hermes", "sharegpt", "openai", "trl", "trl-turns", "axolotl", "axolotl-turns", "llamafactory",
                "llamafactory-turns", "unsloth", "parquet")  # fmt: skip
TOKEN_PRESETS = ("tokens", "atropos", "trl-grpo", "verl", "slime", "skyrl", "tinker", "tree")
RAW_ARGUMENTS = ("openai", "axolotl", "axolotl-turns", "parquet")
"""Formats that keep arguments as the string that was received."""


@dataclass(frozen=True)
class Turn:
    """One turn of a row as the trainer's template would get it."""

    speaker: str
    text: str
    """Thoughts and text, in this order, with whatever tags stand around them."""
    calls: tuple[ToolCall, ...] = ()
    trained: bool = False
    content: str | None = None
    """The text alone, in formats that have a field for thoughts."""

    def marks(self) -> tuple[str, ...]:
        said = [self.text, *(json.dumps(call.arguments) for call in self.calls)]
        return tuple(mark for one in said for mark in MARK.findall(one))


@dataclass(frozen=True)
class Row:
    """A written row."""

    number: int
    turns: tuple[Turn, ...]
    tools: str
    """All text in which tools are described."""
    record: dict[str, Any]
    problems: tuple[str, ...] = ()
    """What its trainer would do beside training the turns that are marked so."""

    def metadata(self) -> dict[str, Any]:
        """The dataset's own columns: an object, JSON text, or both where a trainer needs columns of one type."""
        found = self.record.get("metadata") or {}
        found = json.loads(found) if isinstance(found, str) else found
        return {**found, **json.loads(found["json"])} if isinstance(found.get("json"), str) else found

    def described(self) -> tuple[str, ...]:
        """The marks of the tools offered."""
        return tuple(mark for mark in MARK.findall(self.tools) if mark.startswith("D"))


@dataclass
class Export:
    """A folder that `stemma export` has written."""

    preset: str
    folder: Path
    rows: list[Row]
    report: dict[str, Any]
    receipts: list[dict[str, Any]] = field(default_factory=list)

    def excluded(self) -> list[dict[str, Any]]:
        return [line for line in self.receipts if line.get("type") == "excluded"]


def read_export(preset: str, folder: Path) -> Export:
    """What was written for a preset that takes text."""
    rows = [_READERS[preset](number, record) for number, record in enumerate(records(folder))]
    return Export(preset, folder, rows, report_of(folder), receipts_of(folder))


def records(folder: Path) -> Iterator[dict[str, Any]]:
    if (folder / "train.parquet").exists():
        from pyarrow.parquet import read_table

        yield from read_table(folder / "train.parquet").to_pylist()
    else:
        # Not splitlines(): a separator of lines within a text is no end of a record.
        for line in (folder / "train.jsonl").read_bytes().split(b"\n"):
            if line:
                yield json.loads(line.decode("utf-8", "surrogatepass"))


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_bytes())


def receipts_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "receipts.jsonl"
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [json.loads(line.decode("utf-8", "surrogatepass")) for line in lines if line]


# ── OpenAI messages ──────────────────────────────────────────────────────────────────────────────────────────


def _turn_of_message(message: dict[str, Any], trained: bool) -> Turn:
    content = message.get("content")
    thought = message.get("reasoning_content") or ""
    text = content if isinstance(content, str) else _text_of_parts(content)
    calls = tuple(_call(call) for call in message.get("tool_calls") or [])
    speaker = {"developer": "system"}.get(message["role"], message["role"])
    plain = content if isinstance(content, str) else None
    return Turn(speaker, f"{thought}\0{text}" if thought else text, calls, trained, plain)


def _text_of_parts(content: Any) -> str:
    """What a template writes for parts: their texts; anything else is written as it is, so that it is seen."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    plain = [part["text"] if _is_text(part) else json.dumps(part, ensure_ascii=False) for part in content]
    return "\n".join(plain)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text") and "text" in part


def _call(call: Any) -> ToolCall:
    function = call["function"]
    return ToolCall(function["name"], function["arguments"], call.get("id"))


def _messages(trained: Callable[[dict[str, Any]], bool]) -> Callable[[int, dict[str, Any]], Row]:
    def read(number: int, record: dict[str, Any]) -> Row:
        turns = tuple(_turn_of_message(message, trained(message)) for message in record["messages"])
        return Row(number, turns, json.dumps(record.get("tools"), ensure_ascii=False), record)

    return read


def _trl(whole_completion: bool) -> Callable[[int, dict[str, Any]], Row]:
    def read(number: int, record: dict[str, Any]) -> Row:
        prompt = [_turn_of_message(message, False) for message in record["prompt"]]
        completion = [
            _turn_of_message(message, whole_completion or message["role"] == "assistant")
            for message in record["completion"]
        ]
        problems = []
        if not prompt:
            problems.append("TRL needs a prompt")
        elif prompt[-1].speaker == "assistant":
            problems.append(
                "the prompt ends with a turn of the model: templates write it otherwise than before a reply"
            )
        return Row(number, (*prompt, *completion), record["tools"], record, tuple(problems))

    return read


def _parquet(number: int, record: dict[str, Any]) -> Row:
    """Messages as they were recorded: any provider's shape may be there, and whoever reads it knows that."""
    trained = set(record["trained"])
    turns = tuple(_recorded(message, at in trained) for at, message in enumerate(json.loads(record["messages"])))
    return Row(number, turns, record["tools"], record)


def _recorded(message: dict[str, Any], trained: bool) -> Turn:
    texts = list(_texts_of_recorded(message))
    calls = [_call(call) for call in message.get("tool_calls") or [] if _is_function(call)]
    speaker = {"developer": "system"}.get(message["role"], message["role"])
    content = message.get("content")
    if not trained:  # whatever else a message of the context holds is there as well
        seen = {mark for one in (*texts, *(json.dumps(call.arguments) for call in calls)) for mark in MARK.findall(one)}
        texts += [text for text in _leaves(message) if set(MARK.findall(text)) - seen]
    return Turn(speaker, "\0".join(texts), tuple(calls), trained, content if isinstance(content, str) else None)


def _is_function(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("function"), dict) and "name" in call["function"]


def _texts_of_recorded(message: dict[str, Any]) -> Iterator[str]:
    thoughts: list[str] = []
    for name in ("reasoning", "reasoning_content", "reasoning_details"):
        for thought in _strings(message.get(name)):
            if thought not in thoughts:
                thoughts.append(thought)
    yield from thoughts
    content = message.get("content")
    yield from [content] if isinstance(content, str) else _strings(content)


def _leaves(value: Any) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _leaves(inner)


def _strings(value: Any) -> Iterator[str]:
    """Texts that a reader of parts finds, without looking at types."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one) if not isinstance(one, str) else [one]
    elif isinstance(value, dict):
        for key in ("summary", "thinking", "text", "content", "output"):
            if value.get(key):
                yield from _strings(value[key])


# ── turns of text ────────────────────────────────────────────────────────────────────────────────────────────

_SPEAKERS = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}


def _turn_of_text(speaker: str, value: str, trained: bool) -> Turn:
    speaker = _SPEAKERS.get(speaker, speaker)
    if speaker != "assistant":
        return Turn(speaker, value, (), trained)
    calls = tuple(_call_in_text(body) for body in CALL.findall(value))
    return Turn(speaker, CALL.sub("", value), calls, trained)


def _call_in_text(body: str) -> ToolCall:
    call = json.loads(body)
    return ToolCall(call["name"], call["arguments"])


def _trajectory(number: int, record: dict[str, Any]) -> Row:
    listed = set(record.get("trained_turns", []))
    turns = tuple(
        _turn_of_text(turn["from"], turn["value"], bool(turn.get("train", at in listed)))
        for at, turn in enumerate(record["conversations"])
    )
    problems = []
    if not all("train" in turn for turn in record["conversations"]):
        problems.append("turns without `train`: axolotl's mapping for this file trains every gpt turn")
    first = turns[0].text if turns and turns[0].speaker == "system" else ""
    return Row(number, turns, str(record.get("tools") or "") + first, record, tuple(problems))


def read_dataset(file: Path) -> list[Row]:
    """The rows of a file of turns by the rule of the field: a turn of the model is trained unless the file says no."""
    rows = []
    for number, line in enumerate(line for line in file.read_bytes().split(b"\n") if line):
        record = json.loads(line)
        turns = [Turn("system", record["system"])] if record.get("system") else []
        for turn in record["conversations"]:
            trained = turn["from"] == "gpt" and turn.get("train") is not False and turn.get("weight") != 0
            turns.append(_turn_of_text(turn["from"], turn["value"], trained))
        rows.append(Row(number, tuple(turns), str(record.get("tools") or ""), record))
    return rows


def _unsloth(number: int, record: dict[str, Any]) -> Row:
    turns = tuple(
        _turn_of_text(turn["role"], turn["content"], turn["role"] == "assistant") for turn in record["conversations"]
    )
    tools = turns[0].text if turns and turns[0].speaker == "system" else ""
    return Row(number, turns, tools, record)


def _llamafactory(only_last: bool) -> Callable[[int, dict[str, Any]], Row]:
    def read(number: int, record: dict[str, Any]) -> Row:
        conversations = record["conversations"]
        turns = [Turn("system", record["system"])] if record["system"] else []
        for at, turn in enumerate(conversations):
            of_model = turn["from"] in ("gpt", "function_call")
            trained = of_model and (not only_last or at == len(conversations) - 1)
            turns.append(_llamafactory_turn(turn["from"], turn["value"], trained))
        problems = [
            "LLaMA-Factory drops rows whose turns do not alternate"
            for at, turn in enumerate(conversations)
            if (turn["from"] in ("gpt", "function_call")) != bool(at % 2)
        ]
        return Row(number, tuple(turns), record["tools"], record, tuple(problems[:1]))

    return read


def _llamafactory_turn(speaker: str, value: str, trained: bool) -> Turn:
    if speaker != "function_call":
        return _turn_of_text(speaker, value, trained)
    before, _, body = value.rpartition("<tool_call>\n")
    calls = json.loads(body.removesuffix("\n</tool_call>"))
    return Turn("assistant", before, tuple(ToolCall(call["name"], call["arguments"]) for call in calls), trained)


_READERS: dict[str, Callable[[int, dict[str, Any]], Row]] = {
    "hermes": _trajectory,
    "sharegpt": _trajectory,
    "openai": _messages(lambda message: message["role"] == "assistant" and message.get("weight", 1) != 0),
    "trl": _trl(whole_completion=False),
    "trl-turns": _trl(whole_completion=True),
    "axolotl": _messages(lambda message: message["train"]),
    "axolotl-turns": _messages(lambda message: message["train"]),
    "llamafactory": _llamafactory(only_last=False),
    "llamafactory-turns": _llamafactory(only_last=True),
    "unsloth": _unsloth,
    "parquet": _parquet,
}


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TokenRow:
    """A row of ids: which are trained, and the logprob of each that is."""

    rollout: str | None
    ids: list[int]
    trained: list[bool]
    logprobs: list[float | None]
    record: dict[str, Any]


def token_rows(preset: str, folder: Path) -> list[TokenRow]:
    """The rows as each trainer's loss sees them."""
    return [row for record in records(folder) for row in _TOKEN_READERS[preset](record)]


def _labelled(record: dict[str, Any]) -> list[TokenRow]:
    trained = [label != -100 for label in record["labels"]]
    assert all(label in (-100, token) for label, token in zip(record["labels"], record["input_ids"], strict=True))
    return [TokenRow(record.get("rollout_id"), record["input_ids"], trained, record["logprobs"], record)]


def _atropos(group: dict[str, Any]) -> list[TokenRow]:
    columns = zip(group["tokens"], group["masks"], group["inference_logprobs"], group["overrides"], strict=True)
    return [
        TokenRow(about.get("rollout_id"), ids, [mask != -100 for mask in masks], logprobs, group)
        for ids, masks, logprobs, about in columns
    ]


def _cut(prompt: str, response: str, mask: str, logprobs: str) -> Callable[[dict[str, Any]], list[TokenRow]]:
    def read(record: dict[str, Any]) -> list[TokenRow]:
        before = len(record[prompt])
        return [
            TokenRow(
                record.get("rollout_id") or record.get("extra_fields", {}).get("rollout_id"),
                [*record[prompt], *record[response]],
                [*[False] * before, *(bool(on) for on in record[mask])],
                [*[None] * before, *record[logprobs]],
                record,
            )
        ]

    return read


def _slime(record: dict[str, Any]) -> list[TokenRow]:
    before = len(record["tokens"]) - record["response_length"]
    trained = [*[False] * before, *(bool(on) for on in record["loss_mask"])]
    logprobs = [*[None] * before, *record["rollout_log_probs"]]
    rollout = record.get("rollout_id")
    return [TokenRow(rollout if isinstance(rollout, str) else None, record["tokens"], trained, logprobs, record)]


def _skyrl(output: dict[str, Any]) -> list[TokenRow]:
    names = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs")
    rows = []
    for prompt, response, mask, logprobs in zip(*(output[name] for name in names), strict=True):
        before = len(prompt)
        trained = [*[False] * before, *(bool(on) for on in mask)]
        rows.append(TokenRow(None, [*prompt, *response], trained, [*[None] * before, *logprobs], output))
    return rows


def _tinker(record: dict[str, Any]) -> list[TokenRow]:
    inputs = [token for chunk in record["model_input"]["chunks"] for token in chunk["tokens"]]
    loss = record["loss_fn_inputs"]
    ids = [*inputs[:1], *loss["target_tokens"]]
    assert ids[:-1] == inputs, "targets are not the input shifted by one"
    trained = [False, *(weight != 0 for weight in loss["weights"])]
    return [TokenRow(record["metadata"].get("rollout_id"), ids, trained, [None, *loss["logprobs"]], record)]


def _tree(record: dict[str, Any]) -> list[TokenRow]:
    """A row for each number in `trained_by`: the path from its last trained token to the root."""
    found = []
    for number in sorted(set(record["trained_by"]) - {-1}):
        at = max(place for place, by in enumerate(record["trained_by"]) if by == number)
        path: list[int] = []
        while at >= 0:
            path.append(at)
            at = record["pred_idx"][at]
        path.reverse()
        column = {name: [record[name][place] for place in path] for name in ("input_ids", "trained_by", "logprobs")}
        trained = [by == number for by in column["trained_by"]]
        rollout = record["rows"][number].get("rollout_id")
        found.append(TokenRow(rollout, column["input_ids"], trained, column["logprobs"], record))
    return found


_TOKEN_READERS: dict[str, Callable[[dict[str, Any]], list[TokenRow]]] = {
    "tokens": _labelled,
    "atropos": _atropos,
    "trl-grpo": _cut("prompt_ids", "completion_ids", "env_mask", "logprobs"),
    "verl": _cut("prompt_ids", "response_ids", "response_mask", "response_logprobs"),
    "slime": _slime,
    "skyrl": _skyrl,
    "tinker": _tinker,
    "tree": _tree,
}
