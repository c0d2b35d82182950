"""Tool calls as they come: pieces put together, and each call given the id that its result will need.

Pieces belong together by `index`. Where an endpoint gives none, or gives all its calls the same one, a piece begins a
new call when it names another id together with a name, or names another function after arguments have begun; in every
other case it continues the last. Gaps between indices mean nothing: the order does.

Arguments are never repaired: they end as the string that was received. A call without an id, or with one that an
earlier call of the same reply has, gets one made of its place (`call00302`: message 3, call 2), which the same reply in
the same place always gets; nine letters and digits, since Mistral's templates take nothing else.
`tests/models/test_calls.py` proves it.
"""

from collections.abc import Iterable
from typing import Any

from stemma.core.canonical import encode
from stemma.models.errors import BrokenReply


class CallPieces:
    """The tool calls of one streamed choice."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[int | None, _Call] = {}

    def add(self, pieces: Any) -> str:
        """Take the `tool_calls` of one delta; what of it is for eyes."""
        if not isinstance(pieces, list):
            raise BrokenReply("the tool calls of a delta are no list", status=200)
        return "".join([self._add(piece) for piece in pieces])

    def _add(self, piece: Any) -> str:
        if not isinstance(piece, dict) or not isinstance(piece.get("function") or {}, dict):
            raise BrokenReply("a piece of a tool call is no object", status=200)
        index = piece.get("index")
        place = index if type(index) is int else None
        call = self._at.get(place)
        if call is None or call.ends_before(piece):
            call = self._at[place] = _Call()
            call.place = place
            self._calls.append(call)
        return call.add(piece)

    def whole(self) -> list[dict[str, Any]]:
        """All calls, in the order of their indices."""
        # Calls that share an index, or have none, stay in the order in which they came.
        order = sorted(self._calls, key=lambda call: -1 if call.place is None else call.place)
        return [call.whole() for call in order]


class _Call:
    """One call, as far as it has come."""

    def __init__(self) -> None:
        self.place: int | None = None
        self._id = ""
        self._name = ""
        self._arguments: list[str] = []
        self._function: dict[str, Any] = {}
        self._fields: dict[str, Any] = {}

    def ends_before(self, piece: dict[str, Any]) -> bool:
        """Whether `piece` can only be the beginning of another call."""
        name, call_id = (piece.get("function") or {}).get("name"), piece.get("id")
        if not name:
            return False
        if call_id and self._id and call_id != self._id:
            return True
        # A name may come in pieces, or again with each piece; after the arguments have begun, a new one is new.
        return bool(self._arguments) and name != self._name

    def add(self, piece: dict[str, Any]) -> str:
        function = piece.get("function") or {}
        self._id = self._id or (piece["id"] if isinstance(piece.get("id"), str) else "")
        self._fields.update((k, v) for k, v in piece.items() if k not in ("index", "id", "function") and v is not None)
        self._function.update((k, v) for k, v in function.items() if k not in ("name", "arguments") and v is not None)
        return self._add_name(function.get("name")) + self._add_arguments(function.get("arguments"))

    def _add_name(self, name: Any) -> str:
        if not isinstance(name, str) or name == self._name:
            return ""
        self._name += name
        return name

    def _add_arguments(self, arguments: Any) -> str:
        text = arguments_text(arguments)
        if text:
            self._arguments.append(text)
        return text

    def whole(self) -> dict[str, Any]:
        function = {"name": self._name, "arguments": "".join(self._arguments), **self._function}
        return {"id": self._id, "type": "function", **self._fields, "function": function}


def tidy_calls(calls: Any, *, position: int, taken: Iterable[str] = ()) -> tuple[list[dict[str, Any]], list[str]]:
    """Calls with an id each, no two the same, and the ids that were made here.

    `position` is the place of the reply in its context, `taken` the ids that stand there already.
    """
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise BrokenReply("the tool calls are no list of objects", status=200)
    tidy, seen, made = [], set[str](), list[str]()
    for i, call in enumerate(calls):
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in seen:
            call_id = _made_id(position, i, seen.union(taken, _ids(calls)))
            made.append(call_id)
        seen.add(call_id)
        tidy.append(_tidy(call, call_id))
    return tidy, made


def arguments_text(arguments: Any) -> str:
    """Arguments as the string they should have come as; a string is never touched."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else encode(arguments).decode("utf-8", "surrogatepass")


def _tidy(call: dict[str, Any], call_id: str) -> dict[str, Any]:
    kept = {"id": call_id, "type": "function", **{k: v for k, v in call.items() if k not in ("id", "index")}}
    function = call.get("function")
    if not isinstance(function, dict):
        if kept["type"] == "function" or not isinstance(kept.get(str(kept["type"])), dict):
            raise BrokenReply("a tool call names no function", status=200)
        return kept  # a kind of tool we do not know, which has its own field
    name = function.get("name")
    return {
        **kept,
        "function": {
            **function,
            "name": name if isinstance(name, str) else "",
            "arguments": arguments_text(function.get("arguments")),
        },
    }


def _made_id(position: int, i: int, taken: set[str]) -> str:
    made = f"call{position:03}{i:02}"
    while made in taken:  # a context that was compacted can hold the place's own id already
        i += 1
        made = f"call{position:03}{i:02}"
    return made


def _ids(calls: list[dict[str, Any]]) -> set[str]:
    return {call["id"] for call in calls if isinstance(call.get("id"), str)}
