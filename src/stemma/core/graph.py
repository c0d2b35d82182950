"""MessageGraph: a context window that is edited like a list and forgets nothing a model has seen.

It is a movable tip over an append-only set of nodes. Reading and editing are a list's; the rules beneath:

- An edit keeps the old line as a version exactly when it breaks a prefix: an assistant message stands at or after
  the first changed index, and something really changed. Any other edit leaves no trace.
- `record` appends a message as sampled by a model call. A hand-written assistant message is context.
- Appends and in-place edits are O(1); ids are computed when somebody asks. Nothing recurses.
- A graph is changed by one thread: another one gets `OtherThread` at once, unless that thread has ended or has called
  `hand_over`. Tasks of one event loop share a thread, and it is theirs to take turns.

    S U A        record(A)                  one line, A sampled after S U
    S U' A       graph[1]["content"] = …    the line S U A is kept; in this one A is context
    S U' A V B   append(V), record(B)       two lines; each of A and B is trained once, where it was sampled

`tests/core/test_list_machine.py` compares it with a plain list and a log of snapshots.
"""

import operator
from collections.abc import Container, Iterable, Iterator, MutableSequence
from copy import copy
from typing import Any, NoReturn, overload

from stemma.core import rows as _rows
from stemma.core.call import Call
from stemma.core.editing import EditedLine, Recorded
from stemma.core.message import Message, as_message, same_messages
from stemma.core.rows import Row, Sampled
from stemma.core.version import Version
from stemma.errors import BadCall, BadLink, BadMessage, NotAList


class MessageGraph(EditedLine, MutableSequence[dict[str, Any]]):
    """A list of messages that keeps every version a model reply depends on."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, messages: Iterable[Any] = ()) -> None:
        super().__init__()
        self.marks: dict[object, Any] = {}
        """Where stores note what they have already written of this graph."""
        self.extend(messages)
        self._owner.clear()  # who makes a graph may give it to another thread

    # ── growing ──────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, message: Any, contains: "MessageGraph | Iterable[MessageGraph] | None" = None) -> None:
        """Add a message; `contains` links a tool result to the subagent conversations it answers for."""
        made = Message.of(message)
        self._claim()
        if contains is not None:
            self._link(made, [contains] if isinstance(contains, MessageGraph) else list(contains))
        if made.role == "assistant":
            self._last_assistant = len(self._line)
        self._line.append(made)

    def record(self, message: Any, call: Call) -> None:
        """Append a message that `call` sampled from exactly the current context."""
        made = Message.of(message)
        if made.role != "assistant":
            raise BadMessage(f"only an assistant message can be sampled; this one is {made.role!r}: append it")
        if not isinstance(call, Call):
            raise BadCall(f"record(message, call) needs a stemma.Call; got {type(call).__name__}")
        self._claim()
        self._settle()
        self._live.append(len(self._recorded))
        self._recorded.append(Recorded(copy(call), len(self._line)))  # its dicts are ours alone
        self.append(made)
        self._settle()  # what an open block edits from here on, it edits after this reply

    def attach(self, index: int, *children: "MessageGraph") -> None:
        """Link subagent conversations to the tool result at `index`, later than its append."""
        self._claim()
        self._link(self._line[index], list(children))

    def _link(self, message: Message, children: "list[MessageGraph]") -> None:
        if message.role != "tool" or not isinstance(message.get("tool_call_id"), str):
            raise BadLink("a subagent conversation hangs on a tool message with the tool_call_id that spawned it")
        for child in children:
            if not isinstance(child, MessageGraph):
                raise BadLink(f"contains= takes MessageGraphs, not {type(child).__name__}")
            if any(graph is self for graph in child.reach()):
                raise BadLink("a conversation cannot contain itself, directly or through its subagents")
        for child in children:
            if not any(known is child and owner == message for owner, known in self._links):
                self._links.append((message, child))

    # ── a list's interface ───────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._line)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._view(i) for i in range(*index.indices(len(self._line)))]
        return self._view(self._place(index))

    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._set_slice(index, [Message.of(m) for m in value])
        else:
            i = self._place(index)
            self._splice(i, i + 1, [Message.of(value)])

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            self._delete_slice(index)
        else:
            i = self._place(index)
            self._splice(i, i + 1, [])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        i = 0
        while i < len(self._line):  # asked anew each time: a list may change under its iterator
            yield self._view(i)
            i += 1

    def __contains__(self, value: object) -> bool:
        return self._find(value, 0, len(self)) is not None

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The place of the first message equal to `value`."""
        begin, end, _ = slice(start, stop).indices(len(self))
        found = self._find(value, begin, end)
        if found is None:
            raise ValueError(f"{value!r:.120} is not in this graph")
        return found

    def count(self, value: Any) -> int:
        """How many messages equal `value`."""
        wanted = as_message(value)
        return 0 if wanted is None else self._line.count(wanted)

    def insert(self, index: int, value: Any) -> None:
        """Put a message before `index`."""
        i = slice(operator.index(index), None).indices(len(self))[0]
        self._splice(i, i, [Message.of(value)])

    def extend(self, values: Iterable[Any]) -> None:
        """Append each of `values`; all or, if one cannot be a message, none."""
        for message in [Message.of(m) for m in values]:
            self.append(message)

    def pop(self, index: int = -1) -> dict[str, Any]:
        """Take a message out and return it as a plain dict."""
        i = self._place(index)
        taken = self._line[i].to_dict()
        self._splice(i, i + 1, [])
        return taken

    def remove(self, value: Any) -> None:
        """Take out the first message equal to `value`."""
        i = self.index(value)
        self._splice(i, i + 1, [])

    def clear(self) -> None:
        """Take out every message."""
        self._splice(0, len(self), [])

    def reverse(self) -> None:
        """Turn the line around."""
        self._splice(0, len(self), self._line[::-1])

    def copy(self) -> "MessageGraph":
        """The same as `fork`."""
        return self.fork()

    def sort(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: the order of a conversation is its meaning."""
        raise NotAList("a context window is not sorted; edit it by index, or sort a copy: sorted(graph.messages())")

    def __imul__(self, _: Any) -> NoReturn:
        raise NotAList("a context window is not repeated; append what you mean")

    def __iadd__(self, values: Iterable[Any]) -> "MessageGraph":
        self.extend(list(values))
        return self

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Any]) -> list[Any]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MessageGraph):
            return self._line == other._line
        return same_messages(self._line, other.line() if isinstance(other, Version) else other)

    def __repr__(self) -> str:
        kept = len(self._history.kept)
        return f"<MessageGraph of {len(self)} messages, {kept} version{'' if kept == 1 else 's'}>"

    def __copy__(self) -> "MessageGraph":
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> "MessageGraph":
        return self.deep_fork()

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return {name: value for name, value in self.__dict__.items() if name not in ("_views", "marks", "_owner")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        MessageGraph.__init__(self)  # views and marks belong to the process that made them
        self.__dict__.update(state)

    # ── what was, and what came of it ────────────────────────────────────────────────────────────────────────

    def messages(self) -> list[dict[str, Any]]:
        """The current context as plain API dicts, ready for any SDK."""
        return [m.to_dict() for m in self._line]

    def message(self, index: int) -> dict[str, Any]:
        """One message of the current context as a plain dict, free of the graph."""
        return self._line[index].to_dict()

    @property
    def versions(self) -> tuple[Version, ...]:
        """Superseded lines, oldest first."""
        return tuple(Version(self, kept) for kept in self._history.kept)

    @property
    def previous(self) -> Version | None:
        """The newest superseded line."""
        kept = self._history.kept
        return Version(self, kept[-1]) if kept else None

    def lines(self) -> list[list[dict[str, Any]]]:
        """Every line as plain API dicts: versions oldest first, the current one, then those of subagents."""
        found = []
        for graph in self.reach():
            older = [line for _, _, line in graph._history.newest_first(graph._line)]
            found += [[m.to_dict() for m in line] for line in [*reversed(older), graph._line]]
        return found

    def reach(self) -> "list[MessageGraph]":
        """This graph and every subagent graph below it, each once."""
        found, waiting = {id(self): self}, [self]
        while waiting:
            fresh = [child for _, child in waiting.pop().links() if id(child) not in found]
            found.update((id(child), child) for child in fresh)
            waiting += fresh
        return list(found.values())

    def nested(self, index: int) -> "tuple[MessageGraph, ...]":
        """The subagent conversations that the tool result at `index` answers for."""
        return tuple(self._children_of(self._line[index]).values())

    def links(self) -> "list[tuple[Message, MessageGraph]]":
        """Every link to a subagent conversation, in the order made: the tool result and the conversation."""
        return self._links.copy()

    @property
    def tip(self) -> str | None:
        """The id of the last node; None while there is none."""
        return self.node_ids()[-1].hex() if self._line else None

    def calls(self) -> list[Sampled]:
        """Every recorded call on this graph's own lines, in the order recorded."""
        return _rows.sampled(self)

    def last_call(self) -> Recorded | None:
        """The newest call on the current line, and where its reply stands; a copy, as nothing recorded changes."""
        return self._recorded[self._live[-1]].copy() if self._live else None

    def rows(self, but: Container[object] = ()) -> list[Row]:
        """The fewest lines that hold every sampled message exactly once as trained; see `stemma.core.rows`.

        but: `events` of calls that another graph trains, as one that this was forked from
        """
        return _rows.rows(self, but)

    def events(self) -> set[object]:
        """What tells each recorded call, those of subagents included, from all others; forks share theirs."""
        return _rows.events(self)

    def fork(self) -> "MessageGraph":
        """An independent graph with the same past; they share every message."""
        self._settle()
        other = MessageGraph()
        other._line, other._nodes = self._line.copy(), self._nodes.copy()
        other._last_assistant = self._last_assistant
        other._history = self._history.copy()
        other._recorded, other._live = self._recorded.copy(), self._live.copy()
        other._links = self._links.copy()
        other.marks = {store: mark.fork() for store, mark in self.marks.items()}
        return other

    def deep_fork(self) -> "MessageGraph":
        """A fork whose subagents are forks too, so that later growth of theirs does not reach it."""
        forks = {id(member): member.fork() for member in self.reach()}
        for fork in forks.values():
            fork._links = [(message, forks[id(child)]) for message, child in fork._links]
        return forks[id(self)]

    def _find(self, value: object, start: int, stop: int) -> int | None:
        wanted = as_message(value)
        if wanted is None:
            return None
        line = self._line
        return next((i for i in range(start, stop) if line[i] == wanted), None)
