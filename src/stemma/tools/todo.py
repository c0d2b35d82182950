"""The list of things to do: a model that writes down its plan keeps to it."""

from typing import Annotated, Literal

import msgspec

from stemma.tools.tool import Tool, as_tool
from stemma.tools.workspace import Workspace


class Item(msgspec.Struct, frozen=True):
    """One thing to do."""

    text: str
    status: Literal["open", "doing", "done"] = "open"


def todo(here: Workspace, items: Annotated[list[Item], msgspec.Meta(max_length=200)] | None = None) -> str:
    """Read or replace the list of things to do for this conversation. Without items it only reads.

    items: the whole new list, each with a text and a status: open, doing or done
    """
    if items is not None:
        here.state["todo"] = items
    known: list[Item] = here.state.get("todo", [])
    marks = {"open": " ", "doing": ">", "done": "x"}
    return "\n".join(f"[{marks[item.status]}] {item.text}" for item in known) or "the list is empty"


TOOLS: tuple[Tool, ...] = (as_tool(todo, toolset="todo", quick=True),)
