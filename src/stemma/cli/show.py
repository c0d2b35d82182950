"""`stemma show`: all that is known of one message. `tests/cli/test_show.py` asks for one in every way."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stemma.cli.options import CONFIGURED, JsonOption, StoreOption, reading
from stemma.cli.screen import Screen, pad, visible, width_of

if TYPE_CHECKING:
    from stemma.cli.address import Place
    from stemma.core.rows import Sampled

_TOLD = ("role", "content", "tool_calls")
"""Fields that have their own places on the screen."""

_PACKED = ("prompt_ids", "sampled_ids", "logprobs")


def show(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="An id or its beginning, NAME, NAME@VERSION or NAME:INDEX.")
    ],
    store: StoreOption = CONFIGURED,
    json: JsonOption = False,
) -> None:
    """Show one message in full.

    That is its text and reasoning, tool calls, other fields, the call that sampled it, and its subagents.
    NAME is the last message of that graph, NAME@0 that of its oldest version, NAME:3 the message at index 3.
    """
    from stemma.cli.address import resolve
    from stemma.errors import NotFound

    with reading(store) as opened:
        place = resolve(opened, node)
    if not place.line:
        raise NotFound(f"{place.address()!r} is empty: it has no message to show")
    shown = _shown(place)
    Screen().json(shown) if json else _print(Screen(), shown)


def _shown(place: "Place") -> dict[str, Any]:
    from stemma.cli.address import linked

    message, node = place.line[place.index], place.nodes()[place.index].hex()
    children = linked(place.graph, place.graph_address).get(message.id, [])
    return {
        "node": node,
        "message": message.id.hex(),
        "at": [place.address(place.index), *place.elsewhere()],
        "index": place.index,
        "of": len(place.line),
        "role": message.role,
        "body": message.to_dict(),
        "calls": [_call(sampled) for sampled in place.graph.calls() if sampled.made == node],
        "subagents": [
            {"graph": address, "messages": len(child), "versions": len(child.versions), "tip": child.tip}
            for address, child in children
        ],
    }


def _call(sampled: "Sampled") -> dict[str, Any]:
    call = sampled.call
    counts = {name: len(packed) // 4 for name in _PACKED if (packed := getattr(call, name)) is not None}
    plain = ("model", "id", "params", "finish_reason", "usage", "started", "seconds", "cost", "tools", "extra")
    return {"saw": sampled.saw, **{name: getattr(call, name) for name in plain}, "tokens": counts}


def _print(screen: Screen, shown: dict[str, Any]) -> None:
    facts = [(visible(name), value) for name, value in _facts(shown)]
    width = min(max(width_of([name]) for name, _ in facts), 20)
    for name, value in facts:
        screen.line((pad(name, width) + "  ", "dim"), (value, _style(name, value)))
    for title, text in _texts(shown["body"]):
        screen.line()
        screen.line((f"── {title} ──", "dim"))
        screen.block(text)


def _style(name: str, value: str) -> str:
    from stemma.cli.brief import STYLES

    return STYLES.get(value, "blue") if name == "role" else "green" if name == "sampled" else ""


def _facts(shown: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "node", shown["node"]
    yield "message", shown["message"]
    yield "at", f"{shown['at'][0]}, of {shown['of']}"
    for other in shown["at"][1:]:
        yield "also at", other
    yield "role", shown["role"]
    yield from (field for field in _fields(shown["body"]) if _is_short(field[1]))
    for call in shown["calls"]:
        yield from _call_facts(call)
    for child in shown["subagents"]:
        counts = f"{child['messages']} messages, {child['versions']} versions, tip {(child['tip'] or '–')[:10]}"
        yield "subagent", f"{child['graph']}: {counts}"


def _call_facts(call: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "sampled", f"by {call['model']}"
    yield "saw", call["saw"] or "nothing"
    for name in ("id", "params", "finish_reason", "usage", "started", "extra"):
        if call[name] not in (None, {}):
            yield name.removesuffix("_reason"), _inline(call[name])
    if call["seconds"] is not None:
        yield "took", f"{call['seconds']:g} s"
    if call["cost"] is not None:
        yield "cost", f"${call['cost']:g}"
    if call["tools"] is not None:
        yield "tools", ", ".join(map(_tool_name, call["tools"])) or "none"
    if call["tokens"]:
        yield "tokens", ", ".join(f"{count} {name}" for name, count in call["tokens"].items())


def _inline(value: Any) -> str:
    """A JSON value in one line, the outermost braces left away."""
    from stemma.cli.brief import value_text

    if isinstance(value, dict):
        return "  ".join(f"{name}={value_text(item)}" for name, item in value.items())
    return value_text(value)


def _tool_name(tool: Any) -> str:
    function = tool.get("function", tool) if isinstance(tool, dict) else tool
    return _inline(function.get("name", "?") if isinstance(function, dict) else function)


def _texts(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every field of a message but its role, with a title: what is read first comes first."""
    from stemma.cli.brief import REASONING, tool_calls, value_text, whole_content

    for name in REASONING:
        if fields.get(name):
            yield name, value_text(fields[name])
    if fields.get("content") is not None or not fields.get("tool_calls"):
        yield "content", whole_content(fields.get("content"))
    for number, call in enumerate(tool_calls(fields)):
        yield f"tool call {number}: {call.name} {call.id}".rstrip(), call.arguments + call.rest
    yield from (field for field in _fields(fields) if not _is_short(field[1]))


def _fields(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields that a provider or a caller added."""
    from stemma.cli.brief import REASONING, value_text

    return ((name, value_text(value)) for name, value in fields.items() if name not in (*_TOLD, *REASONING))


def _is_short(text: str) -> bool:
    return len(text) <= 60 and "\n" not in text
