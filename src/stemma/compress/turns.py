"""A conversation as turns that can be counted, cut and summarised, whatever the format it came in.

Trajectory entries (`conversations` of `from` and `value`) and API messages are seen alike, and are edited in their own
form: `cut_out` puts summaries into a copy of the list and leaves every other turn the very object it was.

    S H g t g t g    cut 2…4 and the text Σ    →    S' H Σ g t g    S' is S with the notice, if there is one
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stemma.compress.plan import Cut, Turn
from stemma.errors import BadRecord
from stemma.formats.api import join_reasoning, structured_reasoning, text_of
from stemma.formats.export import compact_json

ROLES = {"user": "human", "assistant": "gpt", "observation": "tool", "developer": "system"}
"""Other names for the four."""

Item = dict[str, Any]


def conversation_of(entry: Mapping[str, Any]) -> list[Item] | None:
    """The list of turns or messages that an entry holds, or None; `BadRecord` if it cannot be one."""
    items = entry.get("conversations", entry.get("messages"))
    if items is None:
        return None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadRecord("the conversation of the row is no list of objects")
    return items


def turns_of(items: Sequence[Item]) -> list[Turn]:
    """What the plan sees of the items."""
    turns: list[Turn] = []
    callers: dict[Any, int] = {}
    last = None
    for i, item in enumerate(items):
        role = _role(item)
        if role == "gpt":
            last = i
            callers.update((_call_id(call), i) for call in _calls(item))
        answers = _caller(item, callers, last) if role == "tool" else None
        turns.append(Turn(role, _text(item), answers))
    return turns


def _role(item: Item) -> str:
    said = item.get("from", item.get("role"))
    return ROLES.get(said, said) if isinstance(said, str) else ""


def _calls(item: Item) -> list[Item]:
    calls = item.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _call_id(call: Item) -> str | None:
    call_id = call.get("id")
    return call_id if isinstance(call_id, str) else None


def _caller(item: Item, callers: Mapping[Any, int], last: int | None) -> int | None:
    """The turn whose call this result answers: by its id, else the model's last one."""
    call_id = item.get("tool_call_id")
    return callers.get(call_id, last) if isinstance(call_id, str) else last


def _text(item: Item) -> str:
    if _field(item) == "content":
        return _message_text(item)
    value = item.get("value")
    return value if isinstance(value, str) else "" if value is None else compact_json(value)


def _field(item: Item) -> str:
    """Where the text of an item stands: in a turn of a trajectory, or in an API message."""
    return "value" if "from" in item or "value" in item else "content"


def _message_text(message: Item) -> str:
    """A message as a template would write it: reasoning, content and calls."""
    reasoning = join_reasoning(structured_reasoning(message))
    parts = [f"<think>\n{reasoning}\n</think>"] if reasoning else []
    parts += [said] if (said := text_of(message.get("content"))) else []
    parts += [f"<tool_call>\n{_call_text(call)}\n</tool_call>" for call in _calls(message)]
    return "\n".join(parts)


def _call_text(call: Item) -> str:
    function = call.get("function")
    if not isinstance(function, dict):
        return compact_json(call)
    name, arguments = function.get("name"), function.get("arguments")
    shown = arguments if isinstance(arguments, str) else compact_json(arguments)
    return f'{{"name": {compact_json(name)}, "arguments": {shown or "{}"}}}'


def cut_out(items: Sequence[Item], cuts: Sequence[Cut], summaries: Sequence[str], notice: str) -> list[Item]:
    """The items with each cut replaced by its summary, and the notice behind the first system turn that stays."""
    made: list[Item] = []
    done = 0
    for cut, summary in zip(cuts, summaries, strict=True):
        made += [*items[done : cut.start], summary_item(summary, like=items[cut.start])]
        done = cut.stop
    made += items[done:]
    return _with_notice(made, notice)


def summary_item(summary: str, *, like: Item) -> Item:
    """A summary as a turn of the human, in the format of its neighbours."""
    turn = _field(like) == "value"
    return {"from": "human", "value": summary} if turn else {"role": "user", "content": summary}


def noticed(items: Sequence[Item], notice: str) -> tuple[int, str] | None:
    """The first system turn and its text with the notice; None where it stands already, or has no place to stand."""
    at = next((i for i, item in enumerate(items) if _role(item) == "system"), None)
    if at is None or not notice:
        return None
    text = items[at].get(_field(items[at]))
    return (at, text + notice) if isinstance(text, str) and not text.endswith(notice) else None


def _with_notice(items: list[Item], notice: str) -> list[Item]:
    found = noticed(items, notice)
    if found is None:
        return items
    at, text = found
    return [*items[:at], {**items[at], _field(items[at]): text}, *items[at + 1 :]]
