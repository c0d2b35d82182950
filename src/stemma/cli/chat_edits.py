"""What a chat does to its own past: edit a message, take back a turn, sample again.

All three are edits of the graph: a reply that stood at or after the first change stays in a version, with the context
it was sampled in. `tests/cli/test_chat_edits.py` proves it.

    S U A V B    /undo       S U A          S U A V B is kept
    S U A V B    /retry      S U A V        the same, and B' is sampled next
    S U A V B    /edit 1     S U' A V B     the same; /retry goes on from there: S U'
"""

from stemma.agent.tool_turn import open_calls
from stemma.core.graph import MessageGraph
from stemma.errors import StemmaError

STOPPED = "Error: the user stopped this call before it had a result"


class BadCommand(StemmaError, ValueError):
    """Something typed into a chat that cannot be done."""


def editable_text(graph: MessageGraph, index: int) -> str:
    """The text of a message, or `BadCommand` if there is none to edit."""
    if not -len(graph) <= index < len(graph):
        raise BadCommand(f"there is no message {index}; they are counted from 0 to {len(graph) - 1}")
    content = graph[index].get("content")
    if content is not None and not isinstance(content, str):
        raise BadCommand(f"message {index} holds parts that are no text; edit it from Python")
    return content or ""


def edit_text(graph: MessageGraph, index: int, text: str) -> str:
    """Give a message another text; says what became of the old one."""
    if editable_text(graph, index) == text:
        return "nothing changed"
    before = len(graph.versions)
    graph[index]["content"] = text
    kept = kept_since(graph, before)
    return f"edited message {range(len(graph))[index]}; {kept or 'no reply stood after it, so nothing had to be kept'}"


def take_back(graph: MessageGraph) -> str:
    """Take the last user turn out, with all that came of it; says what became of it."""
    start = _last_turn(graph)
    before, taken = len(graph.versions), len(graph) - start
    with graph.edit(reason="undo"):
        del graph[start:]
    what = "1 message" if taken == 1 else f"{taken} messages"
    return f"took back {what}; {kept_since(graph, before) or 'no reply was among them, so nothing had to be kept'}"


def cut_for_retry(graph: MessageGraph, edited: int | None = None) -> str | None:
    """Take out what is to be sampled again: all after the message edited last, else all after the last user turn."""
    point = edited if edited is not None and _leads_on(graph, edited) else _last_turn(graph)
    before = len(graph.versions)
    with graph.edit(reason="resample"):
        del graph[point + 1 :]
    return kept_since(graph, before)


def decline_open_calls(graph: MessageGraph) -> None:
    """Answer the tool calls that the user stopped: what comes next must not stand between a call and its result."""
    for call_id, name, _ in open_calls(graph):
        graph.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": STOPPED})


def is_unfinished(graph: MessageGraph) -> bool:
    """Whether the last turn of a conversation still waits for tools or for the model."""
    if not len(graph):
        return False
    last = graph[-1]
    return last["role"] in ("user", "tool") or bool(open_calls(graph))


def kept_since(graph: MessageGraph, before: int) -> str | None:
    """What to say of a version that was not there before."""
    now = len(graph.versions)
    return f"kept as version {now - 1} because a reply stood after it" if now > before else None


def _last_turn(graph: MessageGraph) -> int:
    found = next((i for i in range(len(graph) - 1, -1, -1) if graph[i]["role"] == "user"), None)
    if found is None:
        raise BadCommand("there is no user turn yet")
    return found


def _leads_on(graph: MessageGraph, index: int) -> bool:
    """Whether a line that ends with this message has something to do next."""
    message = graph[index]
    return message["role"] in ("user", "tool") or bool(message.get("tool_calls"))
