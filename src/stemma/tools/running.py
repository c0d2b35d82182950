"""Running what a model asked for: every outcome is a result that the model can read.

A tool that does not exist, arguments that cannot be read, a value of the wrong type and a tool that raises are all
answered with an error result; nothing is repaired in place, and what the model sampled stays as it was sampled. This
is the one place where a tool's failure becomes data. `tests/tools/test_tool.py` proves it.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from stemma.core.canonical import encode, plain
from stemma.errors import BadMessage
from stemma.tools.tool import Tool, ToolError, ToolResult
from stemma.tools.workspace import Workspace

MOST_ARGUMENTS = 1 << 20
"""The longest arguments that are read, in characters of JSON."""
_LONG_ARGUMENTS = 1 << 14


async def run_tool(
    tools: Mapping[str, Tool], name: str, arguments: Any, workspace: Workspace | None = None
) -> ToolResult:
    """What came of the call `name(arguments)`, arguments as the model wrote them."""
    tool = tools.get(name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return failed(f"there is no tool {name!r}; the tools are: {known}")
    try:
        values = await _read(tool, arguments)
    except ToolError as problem:
        return failed(str(problem))
    if tool.takes_workspace:
        values[tool.takes_workspace] = workspace
    try:
        result = as_result(await _call(tool, values))
    except (Exception, SystemExit) as problem:  # noqa: BLE001  the boundary: whatever a tool raises is told to the model
        result = failed(str(problem) or type(problem).__name__)
    return msgspec.structs.replace(result, text=workspace.without_secrets(result.text)) if workspace else result


def failed(why: str) -> ToolResult:
    """The result of a call that did not do what it was asked."""
    return ToolResult(text=f"Error: {why}", ok=False)


async def _read(tool: Tool, arguments: Any) -> dict[str, Any]:
    """`read_arguments`, in a thread if that may take long enough for other conversations to notice."""
    if isinstance(arguments, str) and len(arguments) > _LONG_ARGUMENTS:
        return await asyncio.to_thread(read_arguments, tool, arguments)
    return read_arguments(tool, arguments)


def read_arguments(tool: Tool, arguments: Any) -> dict[str, Any]:
    """The values for a tool's parameters, or `ToolError` saying what is wrong with them."""
    given = _parse(tool, arguments)
    if _takes_anything(tool.run):
        return given
    names = tool.parameters["properties"]
    if unknown := [key for key in given if key not in names]:
        raise ToolError(f"{tool.name} has no parameter {unknown[0]!r}; it takes: {', '.join(names) or 'none'}")
    if missing := [key for key in tool.parameters.get("required", ()) if key not in given]:
        raise ToolError(f"{tool.name} needs the parameter {missing[0]!r}")
    hints = _hints(tool.run)
    return {key: _convert(tool, key, value, hints.get(key, Any)) for key, value in given.items()}


@lru_cache(maxsize=256)
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


_is_async = lru_cache(maxsize=256)(inspect.iscoroutinefunction)


@lru_cache(maxsize=256)
def _takes_anything(function: Callable[..., Any]) -> bool:
    """Whether a function takes `**arguments`: then whoever gave the schema checks them."""
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    return inspect.Parameter.VAR_KEYWORD in kinds


def _parse(tool: Tool, arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str):
        if len(arguments) > MOST_ARGUMENTS:
            raise ToolError(
                f"the arguments of {tool.name} have {len(arguments)} characters, more than {MOST_ARGUMENTS}; "
                "do it in several smaller calls"
            )
        try:
            arguments = _from_json(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as problem:
            raise ToolError(f"the arguments of {tool.name} are not JSON: {problem}") from problem
    if not isinstance(arguments, dict):
        raise ToolError(f"the arguments of {tool.name} must be a JSON object, not {type(arguments).__name__}")
    return arguments


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that names a key twice: readers differ in which of the two they take."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


_from_json = json.JSONDecoder(object_pairs_hook=_no_twice).decode


def _convert(tool: Tool, key: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as problem:
        raise ToolError(f"{tool.name}: {key!r}: {problem}") from problem


async def _call(tool: Tool, values: dict[str, Any]) -> Any:
    if _is_async(tool.run):
        return await tool.run(**values)
    if tool.quick:
        return tool.run(**values)
    return await asyncio.to_thread(tool.run, **values)


def as_result(value: Any) -> ToolResult:
    """Whatever a tool returned, as text for the model."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(text=value)
    try:
        return ToolResult(text=encode(plain(msgspec.to_builtins(value), "result")).decode("utf-8", "surrogatepass"))
    except (BadMessage, TypeError):
        return ToolResult(text=str(value))
