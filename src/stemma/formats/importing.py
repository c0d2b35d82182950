"""An entry of a dataset file as a graph: what `stemma import` keeps.

A turn of the model is recorded as sampled by the model the entry names (`imported` if it names none), and the call says
that it was imported: its context is what the file says, which nobody can vouch for. The line itself is kept, byte for
byte, in the graph's metadata. The name of the graph is made of the file's and the line's content, so importing a file
again finds every line there already. `tests/formats/test_importing.py` proves it.
"""

from collections import Counter
from hashlib import sha256
from typing import Any

import msgspec

from stemma.core.call import Call
from stemma.core.graph import MessageGraph
from stemma.formats.reading import Kind, read_entry
from stemma.formats.training import RESERVED, columns_beside


class Imported(msgspec.Struct, frozen=True):
    """A graph ready to be saved."""

    name: str
    graph: MessageGraph
    metadata: dict[str, Any]


class Importer:
    """Gives each line of one file its graph and name."""

    def __init__(self, stem: str, kind: Kind | None = None) -> None:
        self._stem, self._kind = stem, kind
        self._seen: Counter[str] = Counter()

    def graph(self, entry: dict[str, Any], raw: bytes, line: int) -> Imported:
        """The graph of an entry that stands as `raw` at `line`, or `BadRecord`."""
        messages, tools = read_entry(entry, self._kind)
        content = sha256(raw).hexdigest()[:16]
        self._seen[content] += 1
        ordinal = self._seen[content]
        name = f"{self._stem}/{content}" + (f"-{ordinal}" if ordinal > 1 else "")
        origin = {"file": self._stem, "line": line, "raw": raw.decode("utf-8", "surrogatepass")}
        about = {**columns_beside(entry), RESERVED: {"imported": origin}}
        return Imported(name, _graph(messages, tools, entry), about)


def _graph(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, entry: dict[str, Any]) -> MessageGraph:
    model = entry.get("model")
    extra: dict[str, Any] = {"imported": True}
    call = Call(model=model if isinstance(model, str) and model else "imported", tools=tools, extra=extra)
    graph = MessageGraph()
    for message in messages:
        if message.get("role") == "assistant" and message.get("weight", 1) != 0:
            graph.record(message, call)
        else:
            graph.append(message)
    return graph
