"""Any entry of a dataset file → API messages and tools: Hermes or ShareGPT turns, or OpenAI messages.

The kind of an entry is told by its keys; `--as` names it where that would be wrong.
"""

from collections.abc import Mapping
from typing import Any, Literal

from stemma.errors import BadRecord, BadTrajectory
from stemma.formats.from_hermes import read_trajectory
from stemma.formats.jsonl import from_json

Kind = Literal["hermes", "sharegpt", "openai"]
KINDS: tuple[Kind, ...] = ("hermes", "sharegpt", "openai")

Conversation = tuple[list[dict[str, Any]], list[dict[str, Any]] | None]
"""Messages and the tools that were offered."""


def read_entry(entry: Mapping[str, Any], kind: Kind | None = None) -> Conversation:
    """The conversation of an entry, or `BadRecord` saying what it lacks."""
    if kind is None:
        kind = "openai" if "messages" in entry and "conversations" not in entry else None
    if kind == "openai":
        return _openai(entry)
    try:
        trajectory = read_trajectory(entry, kind)
    except BadTrajectory as problem:
        raise BadRecord(str(problem)) from problem
    return trajectory.messages, trajectory.tools or None


def _openai(entry: Mapping[str, Any]) -> Conversation:
    messages = entry.get("messages")
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages
    ):
        raise BadRecord("has no `messages`: a list of objects, each with a role")
    return messages, _tools(entry.get("tools"))


def _tools(tools: Any) -> list[dict[str, Any]] | None:
    """Tools as a list, which some files hold as JSON text."""
    found = from_json(tools.encode("utf-8", "surrogatepass")) if isinstance(tools, str) and tools.strip() else tools
    if not found:
        return None
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise BadRecord("has `tools` that are no list of objects")
    return found
