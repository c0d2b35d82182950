"""The boxes of a Mermaid diagram: what stands in them, and how hostile text is kept from being more than text.

`label` is the one way to write text into a diagram. `tests/cli/test_mermaid.py` tries to get out of it.
"""

import re
from collections.abc import Iterator
from typing import Any

from stemma.cli.brief import content_text, one_line, squeezed, tool_calls, value_text
from stemma.cli.screen import visible
from stemma.core.call import Call
from stemma.core.message import Message

LONGEST = 100
"""Characters of a text in a box."""

_SIGNS = re.compile(r"[\"#$%&*:;<>@\[\\\]^_`{|}~ﬂ°¶ß]")
"""What Mermaid may take for syntax, an entity, HTML, Markdown, mathematics, an icon, or a placeholder of its own."""

_NAMED = {'"': "#quot;", "&": "#amp;", "<": "#lt;", ">": "#gt;"}

Line = str | tuple[str, str]
"""A line of a label: a text, or what it is and the text."""

_ICONS = {"system": "📋", "developer": "📋", "user": "👤", "assistant": "🤖", "tool": "🔧"}


def escaped(text: str) -> str:
    """`text` in one line, cut, as nothing but text."""
    line = visible(squeezed(text, LONGEST))
    if len(line) > LONGEST:
        line = line[: LONGEST - 1] + "…"
    return _SIGNS.sub(lambda found: _NAMED.get(found[0], f"#{ord(found[0])};"), line)


def label(*lines: Line) -> str:
    """The label of a box."""
    texts = [escaped(line) if isinstance(line, str) else ": ".join(map(escaped, line)) for line in lines]
    return f'"{"<br/>".join(texts)}"'


def message_box(message: Message, calls: list[Call], *, small: bool) -> str:
    """The label of a message that stands in one box."""
    role = message.role.capitalize()
    head = f"{_ICONS.get(message.role, '💬')} {role}"
    said = ("Content", one_line(message.to_dict(), LONGEST))
    if small:
        return label(head, *(("Model", call.model) for call in calls), said)
    return label(f"{head} Message", ("Role", role), said)


def chat_response(name: str, message: Message, calls: list[Call]) -> Iterator[str]:
    """The box of a reply, with a box of metadata for each call that made it."""
    fields = message.to_dict()
    yield f"subgraph {name}[{label('💬 Chat Response')}]"
    for number, call in enumerate(calls):
        yield f"{name}m{number}[{label('📊 Metadata', *_metadata(call))}]:::metadataNode"
    yield f"{name}r[{label('📝 Response', one_line(fields, LONGEST))}]:::metadataNode"
    if fields.get("content") and tool_calls(fields):
        yield f"{name}c[{label(('Content', content_text(fields['content'])))}]:::metadataNode"
    yield "end"


def _metadata(call: Call) -> Iterator[Line]:
    known: dict[str, Any] = {"Model": call.model, **call.params, "Finish": call.finish_reason}
    for field, value in known.items():
        if value is not None:
            yield "Temp" if field == "temperature" else field, value_text(value)
