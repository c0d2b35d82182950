"""How a line is edited: every change is one splice, and a splice that breaks a prefix keeps a version.

This is the machinery beneath `MessageGraph`; the list's interface is in `graph`. The user's rule, in one place
(`_breaks`): a version is kept if an assistant message stands at or after the first changed index. Inside
`with graph.edit(reason=…)` the rule is applied once, to the difference between before and after.

    before   S U A U2 B        with edit("compaction"):
                                   graph[1:4] = [summary]
    after    S Σ B             one version (S U A U2 B), index 1, replaced 3 by 1; the call of B goes with it
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from threading import Thread, current_thread, get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from stemma.core.call import Call
from stemma.core.history import Change, History, Kept
from stemma.core.ids import ROOT, Id, chain
from stemma.core.message import Message
from stemma.core.names import check_name
from stemma.core.splice import narrowed, shared
from stemma.core.view import MessageView
from stemma.errors import OtherThread

if TYPE_CHECKING:
    from stemma.core.graph import MessageGraph


class Recorded:
    """One call and the place of the message it made. Forks share it: it is one event, wherever it is seen."""

    __slots__ = ("at", "call", "event")

    def __init__(self, call: Call, at: int, event: bytes | None = None) -> None:
        self.call, self.at = call, at
        self.event = event
        """What tells it from a call equal in everything; the first store that writes it down makes it up."""

    @property
    def known_as(self) -> object:
        """The event, or while it has none what stands for it in this process."""
        return self.event or id(self)

    def copy(self) -> "Recorded":
        """The same with a call of its own."""
        return Recorded(copy(self.call), self.at, self.event)


class OpenEdit:
    """What `with graph.edit()` must remember to make one version of many edits."""

    __slots__ = ("at", "length", "reason", "taken")

    def __init__(self, reason: str, at: int, length: int) -> None:
        self.reason, self.at, self.length = reason, at, length
        self.taken: list[int] = []
        """Numbers of the calls whose replies the edits have touched so far."""


class EditedLine:
    """The current line, its history, and the one way to change it."""

    def __init__(self) -> None:
        self._line: list[Message] = []
        self._nodes: list[Id] = []  # ids of the first nodes of the line, as far as anybody has asked
        self._last_assistant = -1
        self._history = History()
        self._recorded: list[Recorded] = []
        self._live: list[int] = []  # numbers of the calls on the current line, by rising place
        self._links: list[tuple[Message, MessageGraph]] = []  # tool results and their subagents; only grows
        self._views: WeakValueDictionary[int, MessageView] = WeakValueDictionary()
        self._open: OpenEdit | None = None
        self._owner: dict[str, Thread] = {}  # the thread that changes it, once one has; setting a key is atomic

    # ── one thread ───────────────────────────────────────────────────────────────────────────────────────────

    def check_thread(self) -> None:
        """Raise `OtherThread` if another thread that still runs has changed this graph."""
        owner = self._owner.get("thread")
        if owner is not None and owner.ident != get_ident() and owner.is_alive():
            raise OtherThread(
                "another thread is changing this graph, and a reply recorded now could be tied to a context it was not"
                " sampled from; give each thread a fork(), or call hand_over() in the thread that is done with it"
            )

    def hand_over(self) -> None:
        """Let another thread go on with this graph: the next one that changes it owns it."""
        self.check_thread()
        self._owner.clear()

    def _claim(self) -> None:
        """Make this thread the one that changes the graph."""
        owner = self._owner.get("thread")
        if owner is None:
            owner = self._owner.setdefault("thread", current_thread())
        if owner.ident != get_ident():
            self.check_thread()
            self._owner["thread"] = current_thread()  # the other one has ended

    @contextmanager
    def edit(self, reason: str = "edit") -> Iterator[None]:
        """Make all edits inside the block one version, kept for `reason`; an inner block joins the outer."""
        check_name("reason", reason)
        self._claim()
        if self._open is not None:
            yield
            return
        self._open = OpenEdit(reason, len(self._history.changes), len(self._line))
        try:
            yield
        finally:
            self._settle()
            self._open = None

    def node_ids(self) -> list[Id]:
        """The ids of the nodes of the current line."""
        known = len(self._nodes)
        if known < len(self._line):
            parent = self._nodes[-1] if self._nodes else ROOT
            self._nodes += chain(parent, (m.id for m in self._line[known:]))
        return self._nodes

    def restore(self, line: list[Message], versions: Iterable[tuple[Kept, list[Message]]]) -> None:
        """Become what a store has: this line, and these versions of it, oldest first."""
        self._line = line.copy()
        self._history.restore(versions, self._line)
        self._find_last_assistant(-1, [])

    # ── one change ───────────────────────────────────────────────────────────────────────────────────────────

    def _splice(self, start: int, stop: int, new: list[Message]) -> None:
        """Put `new` in the place of `line[start:stop]`, keeping a version if that breaks a prefix."""
        self._claim()
        start, stop, new = narrowed(self._line, start, stop, new)
        if start == stop and not new:
            return
        removed = tuple(self._line[start:stop])
        if start < len(self._line):
            self._note(start, removed, new)
        self._carry_links(removed, new)
        self._forget_views(start, stop, moved=len(new) != len(removed))
        self._line[start:stop] = new
        del self._nodes[start:]
        self._find_last_assistant(start, new)

    def _note(self, start: int, removed: tuple[Message, ...], new: list[Message]) -> None:
        """Write the change into the history, if anything will ever need to undo it."""
        breaks, taken = self._breaks(start), self._take_calls(start)
        if self._open is not None:
            self._open.taken += taken
        elif breaks:
            self._keep("edit", len(self._line), start, len(removed), tuple(new), taken)
        if breaks or self._open is not None or self._history.kept:
            length = len(self._line) - len(removed) + len(new)
            self._history.changes.append(Change(start, removed, len(new), length))

    def _breaks(self, start: int) -> bool:
        return start <= self._last_assistant

    def _take_calls(self, start: int) -> list[int]:
        """Numbers of the calls at or after `start`, which leave the current line."""
        first = len(self._live)
        while first and self._recorded[self._live[first - 1]].at >= start:
            first -= 1
        taken = self._live[first:]
        del self._live[first:]
        return taken

    def _keep(
        self, reason: str, length: int, index: int, replaced: int, replacement: tuple[Message, ...], calls: list[int]
    ) -> None:
        at = len(self._history.changes) if self._open is None else self._open.at
        self._history.kept.append(Kept(at, length, index, reason, replaced, replacement, tuple(calls)))

    def _find_last_assistant(self, start: int, new: list[Message]) -> None:
        if start <= self._last_assistant or any(m.role == "assistant" for m in new):
            line = self._line
            places = range(len(line) - 1, -1, -1)
            self._last_assistant = next((i for i in places if line[i].role == "assistant"), -1)

    def _carry_links(self, removed: tuple[Message, ...], new: list[Message]) -> None:
        """A rewritten tool result still answers for its subagents."""
        if not self._links or len(removed) != len(new):
            return
        for old, fresh in zip(removed, new, strict=True):
            if old.role == fresh.role == "tool" and old.get("tool_call_id") == fresh.get("tool_call_id"):
                known = self._children_of(fresh)
                self._links += [(fresh, child) for key, child in self._children_of(old).items() if key not in known]

    def _children_of(self, message: Message) -> "dict[int, MessageGraph]":
        """The subagent conversations that a tool result answers for, each once."""
        return {id(child): child for owner, child in self._links if owner == message}

    # ── many changes as one ──────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        """Decide on the edits of an open block so far, because a call, a fork or its end needs to know."""
        if self._open is None:
            return
        block, changes = self._open, self._history.changes
        if len(changes) > block.at:
            self._settle_changes(block)
        self._open = OpenEdit(block.reason, len(changes), len(self._line))

    @contextmanager
    def _as_if_settled(self) -> Iterator[None]:
        """Show a reader the line and its versions as if an open block ended here; afterwards it is open as before."""
        block, live, versions = self._open, self._live, len(self._history.kept)
        if block is None:
            yield
            return
        self._settle()
        try:
            yield
        finally:
            self._open, self._live = block, live
            del self._history.kept[versions:]

    def _settle_changes(self, block: OpenEdit) -> None:
        old = self._history.line_at(self._line, block.at, block.length)
        head, tail = shared(old, self._line)
        calls = sorted(block.taken)
        lost = [n for n in calls if self._recorded[n].at >= head]
        if any(m.role == "assistant" for m in old[head:]):
            replacement = tuple(self._line[head : len(self._line) - tail])
            self._keep(block.reason, len(old), head, len(old) - head - tail, replacement, lost)
            calls = [n for n in calls if self._recorded[n].at < head]
        # What an edit took and a later edit of the same block put back is where it was sampled again.
        self._live = sorted([*self._live, *calls])

    # ── views ────────────────────────────────────────────────────────────────────────────────────────────────

    def _view(self, index: int) -> MessageView:
        """The one live view of this message: two readers of `graph[i]` hold the same dict, as with a list."""
        view = self._views.get(index)
        if view is None:
            view = self._views[index] = MessageView(self, index, self._line[index].to_dict())
        return view

    def _holds(self, view: MessageView, index: int) -> bool:
        return self._views.get(index) is view

    def _rewrite(self, view: MessageView, index: int, message: Message) -> None:
        """An edit through a view, which stays valid."""
        self._splice(index, index + 1, [message])
        self._views[index] = view

    def _forget_views(self, start: int, stop: int, *, moved: bool) -> None:
        few = not moved and stop - start <= len(self._views)  # an edit in place does not look at every view
        for index in range(start, stop) if few else [i for i in self._views if i >= start and (moved or i < stop)]:
            self._views.pop(index, None)

    # ── indices ──────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, index: Any) -> int:
        """`index` as a place from the front, or a list's own complaint."""
        place: int = range(len(self._line))[index]
        return place

    def _set_slice(self, where: slice, new: list[Message]) -> None:
        start, stop, step = where.indices(len(self._line))
        if step == 1:
            self._splice(start, max(start, stop), new)
        else:
            line = self._line.copy()
            line[where] = new  # raises ValueError as a list does if the sizes differ
            self._splice(0, len(line), line)

    def _delete_slice(self, where: slice) -> None:
        line = self._line.copy()
        del line[where]
        self._splice(0, len(self._line), line)
