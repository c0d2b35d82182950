"""The naive message graph, as the user's own page sketches it: the baseline of every ratio.

A list of dicts. Setting an item of a line in which a reply stands at or after that place first copies the whole graph,
its earlier copies included, and hangs the copy behind itself. Nothing else is recorded: writing into a message
(`graph[2]["content"] = x`) changes it under everybody's feet. After about 248 edits the copy recurses too deep.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any


class NaiveGraph:
    """A context window that remembers by copying."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.prev_graph: NaiveGraph | None = None

    def append(self, message: dict[str, Any]) -> None:
        """Add a message."""
        self.messages.append(message)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.messages[index]

    def __setitem__(self, index: int, message: dict[str, Any]) -> None:
        if message["role"] == "assistant" and message["content"] == self.messages[index]["content"]:
            return
        if any(later["role"] == "assistant" for later in self.messages[index:]):
            self.prev_graph = deepcopy(self)
        self.messages[index] = message

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.messages)
