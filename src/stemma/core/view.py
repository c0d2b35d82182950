"""Item access that looks like a dict and writes to the graph.

`graph[2]` is a real dict, nested dicts and lists included, so every reader of dicts can read it: `isinstance`,
`json.dumps`, `{**m}`, equality. Every way to change it, at any depth, goes to the graph as an edit of message 2.
A refused write (a value JSON cannot hold) changes nothing. A view whose message has moved or been replaced is
stale: it can still be read, and a write through it raises `StaleView` instead of landing elsewhere. What is
popped out of a view is a plain value again, and what is put in is copied.
`tests/core/test_view.py` and the state machine in `tests/core/test_list_machine.py` prove it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypeVar

from stemma.core.canonical import plain
from stemma.core.message import Message
from stemma.errors import StaleView

if TYPE_CHECKING:
    from stemma.core.editing import EditedLine

T = TypeVar("T")


class _Part:
    """What the dict and list views share: a root to ask for leave, and a way to undo a refused write."""

    __slots__ = ()

    _root: "MessageView | None"

    def _children(self) -> Iterable[Any]:
        raise NotImplementedError

    def _state(self) -> Any:
        raise NotImplementedError

    def _reset(self, state: Any) -> None:
        raise NotImplementedError

    def _adopt_children(self, root: "MessageView", before: Any) -> None:
        raise NotImplementedError

    def _write(self, change: Callable[[], T]) -> T:
        """Change this part, then the message; on a refusal put this part back as it was."""
        root = _writable(self._root)
        before = self._state()
        parts = [child for child in self._children() if isinstance(child, _Part)]
        try:
            result = change()
            root._commit()
        except BaseException:
            self._reset(before)
            raise
        self._adopt_children(root, before)
        kept = {id(child) for child in self._children()}
        for part in parts:
            if id(part) not in kept:
                _release(part)
        return plain(result, "value") if isinstance(result, _Part) else result

    def __copy__(self) -> Any:
        return self._state()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return plain(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return (plain, (plain(self),))


class DictView(_Part, dict[str, Any]):
    """A dict inside a message."""

    __slots__ = ("_root",)

    def _children(self) -> Iterable[Any]:
        return self.values()

    def _state(self) -> dict[str, Any]:
        return dict(self)

    def _reset(self, state: dict[str, Any]) -> None:
        dict.clear(self)
        dict.update(self, state)

    def _adopt_children(self, root: "MessageView", before: dict[str, Any]) -> None:
        for key, value in self.items():
            if value is not before.get(key):
                dict.__setitem__(self, key, _wrap(plain(value), root))

    def __setitem__(self, key: str, value: Any) -> None:
        self._write(lambda: dict.__setitem__(self, key, value))

    def __delitem__(self, key: str) -> None:
        self._write(lambda: dict.__delitem__(self, key))

    def pop(self, *args: Any) -> Any:
        return self._write(lambda: dict.pop(self, *args))

    def popitem(self) -> tuple[str, Any]:
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        self._write(lambda: dict.clear(self))

    def update(self, *args: Any, **fields: Any) -> None:
        self._write(lambda: dict.update(self, *args, **fields))

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self._write(lambda: dict.__ior__(self, other) and None)
        return self


class ListView(_Part, list[Any]):
    """A list inside a message, such as `tool_calls` or the parts of a content."""

    __slots__ = ("_root",)

    def _children(self) -> Iterable[Any]:
        return self

    def _state(self) -> list[Any]:
        return list(self)

    def _reset(self, state: list[Any]) -> None:
        list.__setitem__(self, slice(None), state)

    def _adopt_children(self, root: "MessageView", before: list[Any]) -> None:
        ours = {id(value) for value in before}
        for i, value in enumerate(self):
            if id(value) in ours:
                ours.discard(id(value))  # a part put in a second time is copied, like all that is put in
            else:
                list.__setitem__(self, i, _wrap(plain(value), root))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._write(lambda: list.__setitem__(self, index, value))

    def __delitem__(self, index: Any) -> None:
        self._write(lambda: list.__delitem__(self, index))

    def append(self, value: Any) -> None:
        self._write(lambda: list.append(self, value))

    def extend(self, values: Iterable[Any]) -> None:
        self._write(lambda: list.extend(self, values))

    def insert(self, index: SupportsIndex, value: Any) -> None:
        self._write(lambda: list.insert(self, index, value))

    def pop(self, index: SupportsIndex = -1) -> Any:
        return self._write(lambda: list.pop(self, index))

    def remove(self, value: Any) -> None:
        self._write(lambda: list.remove(self, value))

    def clear(self) -> None:
        self._write(lambda: list.clear(self))

    def reverse(self) -> None:
        self._write(lambda: list.reverse(self))

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        self._write(lambda: list.sort(self, key=key, reverse=reverse))

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(values)
        return self

    def __imul__(self, times: SupportsIndex) -> Self:
        self[:] = list(self) * times
        return self


class MessageView(DictView):
    """`graph[i]`: a whole message."""

    __slots__ = ("__weakref__", "_graph", "_index")

    def __init__(self, graph: "EditedLine", index: int, fields: dict[str, Any]) -> None:
        self._graph = graph
        self._index = index
        for key, value in fields.items():
            dict.__setitem__(self, key, _wrap(value, self))

    @property
    def _root(self) -> "MessageView":  # type: ignore[override]
        return self  # not an attribute: a view that held itself would wait for the garbage collector

    def _commit(self) -> None:
        self._graph._rewrite(self, self._index, Message.of(self))


def _wrap(value: Any, root: MessageView) -> Any:
    """`value` with every container in it made a view of `root`."""
    if isinstance(value, dict):
        part = DictView({key: _wrap(item, root) for key, item in value.items()})
    elif isinstance(value, list):
        part = ListView(_wrap(item, root) for item in value)  # type: ignore[assignment]
    else:
        return value
    part._root = root
    return part


def _release(part: _Part) -> None:
    """A part that left its message writes nowhere any more, nor do the parts within it."""
    part._root = None  # type: ignore[misc]
    for child in part._children():
        if isinstance(child, _Part):
            _release(child)


def _writable(root: MessageView | None) -> MessageView:
    if root is None or not root._graph._holds(root, root._index):
        raise StaleView("this message has been replaced, moved or removed since; take graph[i] again and edit that")
    return root
