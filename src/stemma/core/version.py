"""A superseded line, as its reader sees it: a read-only list of plain messages that knows why it was left."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

from stemma.core.history import Kept
from stemma.core.ids import ROOT, chain
from stemma.core.message import Message, same_messages

if TYPE_CHECKING:
    from stemma.core.editing import EditedLine


class Version:
    """One line that an edit replaced."""

    __slots__ = ("_graph", "_kept")

    def __init__(self, graph: "EditedLine", kept: Kept) -> None:
        self._graph = graph
        self._kept = kept

    @property
    def reason(self) -> str:
        """Why it was replaced: edit, compaction, resample, repair, …"""
        return self._kept.reason

    @property
    def index(self) -> int:
        """The first message that differs in the line that replaced it."""
        return self._kept.index

    @property
    def replaced(self) -> list[dict[str, Any]]:
        """The messages that were taken out, the first of them at `index`."""
        return [m.to_dict() for m in self.line()[self.index : self.index + self._kept.replaced]]

    @property
    def replacement(self) -> list[dict[str, Any]]:
        """The messages that were put in their place."""
        return [m.to_dict() for m in self._kept.replacement]

    @property
    def tip(self) -> str:
        """The id of its last node."""
        return chain(ROOT, (m.id for m in self.line()))[-1].hex()

    def line(self) -> list[Message]:
        """Its messages as frozen values."""
        return self._graph._history.line_at(self._graph._line, self._kept.at, self._kept.length)

    def messages(self) -> list[dict[str, Any]]:
        """Its messages as fresh API dicts."""
        return [m.to_dict() for m in self.line()]

    def __len__(self) -> int:
        return self._kept.length

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        found = self.line()[index]
        return [m.to_dict() for m in found] if isinstance(found, list) else found.to_dict()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.messages())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Version):
            return self.line() == other.line()
        return same_messages(self.line(), getattr(other, "_line", other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Version of {len(self)} messages, left at {self.index} because of {self.reason}>"
