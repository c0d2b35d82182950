"""An entry of a dataset file → what it says: messages, tools, which replies are trained, and the columns beside them.

    conversations          Hermes, ShareGPT or LLaMA-Factory turns (`from`, `value`); as messages if they have a `role`
    messages               OpenAI messages, as OpenAI, axolotl and most others have them
    prompt, completion     lists of messages, as TRL has them: replies of the prompt are context

The kind of an entry is told by its keys; `--as` names it where that would be wrong.

Every reply is trained unless the entry says otherwise, and all that it says must agree: `trained_turns` lists the turns
that are; `train` and `weight` of a turn or message are true or 1 if it is, false or 0 if it is not, and null if nobody
said so. Any other value is an error: a weight of 0.5 can be neither kept nor ignored.

A `system` column is the conversation's first message. `model`, `finish_reason`, `timestamp`, `completed` and
`on_policy` are about how the replies were sampled, and `finish_reason` is that of the last trained one. All other
columns are the dataset's own, and so is all that stands in `metadata`. `tests/formats/test_reading.py` proves it.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stemma.errors import BadRecord, BadTrajectory
from stemma.formats.entries import entry_metadata
from stemma.formats.from_hermes import read_trajectory
from stemma.formats.jsonl import from_json

Kind = Literal["hermes", "sharegpt", "llamafactory", "openai"]
KINDS: tuple[Kind, ...] = ("hermes", "sharegpt", "llamafactory", "openai")

Message = dict[str, Any]

_CONVERSATION = ("conversations", "messages", "tools", "trained_turns", "off_policy", "style")
_TEXT, _FLAG = (str, type(None)), (bool, type(None))
_ABOUT = {"model": _TEXT, "finish_reason": _TEXT, "timestamp": _TEXT, "completed": _FLAG, "on_policy": _FLAG}
"""Columns about how replies were sampled; with a value of another type they are the dataset's own."""
_FLAGS = ("train", "weight")
"""What a turn or message says of whether it is trained."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry says."""

    messages: list[Message]
    """API messages, without the flags that say which are trained."""
    tools: list[dict[str, Any]] | None
    """The tools that were offered."""
    trained: tuple[int, ...]
    """Which messages are trained."""
    model: str = ""
    finish_reason: str | None = None
    """That of the last trained message."""
    timestamp: str = ""
    completed: bool | None = None
    """None if the entry does not say."""
    on_policy: bool | None = None
    """Whether its replies were sampled in exactly this context; None if the entry does not say."""
    columns: dict[str, Any] = {}
    """What the dataset says beside the conversation."""


def read_entry(entry: Mapping[str, Any], kind: Kind | None = None) -> Entry:
    """What an entry says, or `BadRecord` saying what it lacks."""
    if kind == "openai" or (kind is None and _has_messages(entry)):
        messages, tools, trained = _openai(entry)
    else:
        messages, tools, trained = _trajectory(entry, kind)
    columns = _columns(entry)
    if isinstance(columns.get("system"), str | list) and (system := columns.pop("system")):
        leading = {"role": "system", "content": system}
        if messages[:1] != [leading]:
            messages, trained = [leading, *messages], [at + 1 for at in trained]
    about = {name: columns.pop(name) for name, kinds in _ABOUT.items() if type(columns.get(name, ...)) in kinds}
    about = {name: value for name, value in about.items() if value not in (None, "")}
    own = _own_columns(entry)
    if "model" not in entry and isinstance(own.get("model"), str):  # where batch files of the incumbent have it
        about["model"] = own["model"]
    columns |= own
    return Entry(messages=messages, tools=tools, trained=tuple(trained), columns=columns, **about)


def _has_messages(entry: Mapping[str, Any]) -> bool:
    turns = entry.get("conversations")
    if turns is None:
        return "messages" in entry or "completion" in entry
    return isinstance(turns, list) and bool(turns) and isinstance(turns[0], dict) and "role" in turns[0]


def _trajectory(
    entry: Mapping[str, Any], kind: Kind | None
) -> tuple[list[Message], list[dict[str, Any]] | None, list[int]]:
    try:
        read = read_trajectory(entry, kind, exact=True)
    except BadTrajectory as problem:
        raise BadRecord(str(problem)) from problem
    turns = entry["conversations"]
    replies = [at for at, message in enumerate(read.messages) if message["role"] == "assistant"]
    of_turn = dict(zip((at for at, turn in enumerate(turns) if turn["from"] in _MODEL), replies, strict=True))
    flagged = {at for at, turn in enumerate(turns) if len(turn) == 2 or _is_trained(turn, at, at in of_turn)}
    listed = _listed(entry.get("trained_turns"), of_turn)
    return read.messages, read.tools or None, [of_turn[at] for at in of_turn if at in flagged and at in listed]


_MODEL = ("gpt", "assistant", "function_call")
"""Speakers of turns that are the model's."""


def _listed(trained_turns: Any, of_turn: dict[int, int]) -> Any:
    """The turns that `trained_turns` lists; all of the model's if it is not there."""
    if trained_turns is None:
        return of_turn
    if not isinstance(trained_turns, list) or not all(type(at) is int and at in of_turn for at in trained_turns):
        raise BadRecord(f"has `trained_turns` that are not a list of the model's turns: {trained_turns!r:.80}")
    return trained_turns


def _openai(entry: Mapping[str, Any]) -> tuple[list[Message], list[dict[str, Any]] | None, list[int]]:
    prompt, found = entry.get("prompt"), entry.get("messages", entry.get("conversations"))
    if found is None and isinstance(prompt, list) and isinstance(entry.get("completion"), list):
        found = [*prompt, *entry["completion"]]
    else:
        prompt = []
    if not isinstance(found, list) or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in found):
        raise BadRecord("has no `messages`: a list of objects, each with a role")
    trained = [
        at
        for at, message in enumerate(found)
        if _is_trained(message, at, message["role"] == "assistant") and at >= len(prompt)
    ]
    return [_without_flags(message) for message in found], _tools(entry.get("tools")), trained


def _is_trained(flagged: Mapping[str, Any], at: int, of_model: bool) -> bool:
    """Whether a turn or message is trained; `BadRecord` if its flags say neither yes nor no."""
    for name in _FLAGS:
        flag = flagged.get(name)
        if flag is None:
            continue
        if not isinstance(flag, int | float) or flag not in (0, 1):
            raise BadRecord(f"message {at} has {name!r}: {flag!r:.40}; it can be true, false, 1, 0 or null")
        if not flag:
            return False
        if name == "train" and not of_model:
            raise BadRecord(f"message {at} is to be trained, and it is not the model's")
    return of_model


def _without_flags(message: Message) -> Message:
    if "weight" in message or "train" in message:
        return {key: value for key, value in message.items() if key not in _FLAGS}
    return message


def _tools(tools: Any) -> list[dict[str, Any]] | None:
    """Tools as a list, which some files hold as JSON text."""
    found = from_json(tools.encode("utf-8", "surrogatepass")) if isinstance(tools, str) and tools.strip() else tools
    if not found:
        return None
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise BadRecord("has `tools` that are no list of objects")
    return found


def _columns(entry: Mapping[str, Any]) -> dict[str, Any]:
    """All of an entry beside its conversation, but for what is in its `metadata`."""
    left = (*_CONVERSATION, *(("prompt", "completion") if isinstance(entry.get("completion"), list) else ()))
    about = {key: value for key, value in entry.items() if key not in left}
    if about.get("source") == "stemma":  # what `sharegpt_entry` writes
        del about["source"]
    if isinstance(about.get("metadata"), dict):
        del about["metadata"]
    return about


def _own_columns(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the dataset says in `metadata`: none of it is about the conversation, whatever its name."""
    return entry_metadata(entry) if isinstance(entry.get("metadata"), dict) else {}
