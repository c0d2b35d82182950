"""A tool is a typed function with a docstring; its JSON schema is derived.

    >>> def add(a: int, b: int = 1) -> int:
    ...     \"\"\"Add two numbers.
    ...
    ...     a: the first
    ...     b: the second
    ...     \"\"\"
    ...     return a + b
    >>> as_tool(add).parameters["properties"]["a"]
    {'type': 'integer', 'description': 'the first'}

The description is the docstring's first part; a line `name: text` below it describes that parameter. Functions may be
sync (they run in a thread) or async. A parameter annotated `Workspace` is not the model's: it gets the conversation's
own folder, sandbox and links. What a tool returns is text for the model, or JSON; to say more, return a `ToolResult`.
A tool that raises has failed, and its error is what the model is told; one that raises `stemma.errors.HarnessFailed`
could not be run through no fault of the model, and fails the task. A tool of your own may take `SECONDS` and say
`OUTPUT_CHARS` unless it has limits of its own: `as_tool(build, seconds=900)`. `tests/tools/test_tool.py` proves it.
"""

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from stemma.errors import StemmaError

if TYPE_CHECKING:
    from stemma.core.graph import MessageGraph


SECONDS = 120.0
"""How long a user's own tool may take, unless it says."""
OUTPUT_CHARS = 30_000
"""How much of its result the model gets, unless it says: head and tail, the cut counted."""


class ToolError(StemmaError):
    """What a tool raises to tell the model why it could not: the text is for the model."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a tool call."""

    text: str
    """What the model reads."""
    ok: bool = True
    """Whether the tool did what it was asked; statistics count this, never the text."""
    children: "tuple[MessageGraph, ...]" = ()
    """Conversations of subagents that worked for it."""
    cut: int = 0
    """How many characters of output were left out."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Something a model can call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""
    run: Callable[..., Any]
    """The function itself, sync or async."""
    toolset: str = "custom"
    """The group it belongs to."""
    quick: bool = False
    """Whether it does so little that waking a thread would cost more; it then runs in the event loop itself."""
    takes_workspace: str | None = None
    """The name of the parameter that gets the conversation's workspace, if any."""
    seconds: float | None = None
    """How long a call may take; None: `SECONDS`. Shipped tools and those of MCP servers have settings of their own."""
    output_chars: int | None = None
    """How much of a result the model gets; None: `OUTPUT_CHARS`."""

    def schema(self) -> dict[str, Any]:
        """The tool as the API takes it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


def as_tool(
    function: Callable[..., Any],
    *,
    toolset: str = "custom",
    quick: bool = False,
    seconds: float | None = None,
    output_chars: int | None = None,
) -> Tool:
    """The tool that a typed function is."""
    name = function.__name__
    described = inspect.getdoc(function)
    if not described:
        raise ToolError(f"{name} needs a docstring: it is what the model reads to know when to call it")
    description, notes = _read_docstring(described)
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    workspace = next((n for n in parameters if getattr(hints.get(n), "__name__", "") == "Workspace"), None)
    offered = {n: p for n, p in parameters.items() if n != workspace}
    return Tool(
        name=name,
        description=description,
        parameters=_schema(name, offered, hints, notes),
        run=function,
        toolset=toolset,
        quick=quick,
        takes_workspace=workspace,
        seconds=seconds,
        output_chars=output_chars,
    )


def _schema(
    tool: str, offered: dict[str, inspect.Parameter], hints: dict[str, Any], notes: dict[str, str]
) -> dict[str, Any]:
    for name, parameter in offered.items():
        if name not in hints or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ToolError(f"{tool}: the parameter {name!r} needs a type, so that its schema can be derived")
    schemas, shared = msgspec.json.schema_components([hints[name] for name in offered], ref_template="#/$defs/{name}")
    described = zip(offered.items(), schemas, strict=True)
    properties = {name: _property(schema, parameter, notes.get(name)) for (name, parameter), schema in described}
    required = [name for name, parameter in offered.items() if parameter.default is parameter.empty]
    found = {"type": "object", "properties": properties, "required": required}
    return {**found, "$defs": shared} if shared else found


def _property(schema: dict[str, Any], parameter: inspect.Parameter, note: str | None) -> dict[str, Any]:
    found = dict(schema)
    if note:
        found["description"] = note
    if parameter.default not in (parameter.empty, None):
        found["default"] = parameter.default
    return found


_NOTE = re.compile(r"^(\w+): (.+)$")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and what is said of each parameter."""
    description, notes, latest = [], {}, None
    for line in text.splitlines():
        note = _NOTE.match(line)
        if note:
            latest = note[1]
            notes[latest] = note[2].strip()
        elif latest and line.startswith("  "):
            notes[latest] += " " + line.strip()
        else:
            latest = None
            description.append(line)
    return "\n".join(description).strip(), notes
