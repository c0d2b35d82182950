"""Running what a model asked for: what comes of it is a result that the model can read, or a failure of the harness.

A tool that does not exist, arguments that cannot be read, a value of the wrong type and a tool that raises are all
answered with an error result; nothing is repaired in place, and what the model sampled stays as it was sampled. What
the harness could not do is no answer and rises as `HarnessFailed` (`tools/failures.py`). This is the one place where a
tool's failure becomes data. `tests/tools/test_tool.py` proves it.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from stemma.core.canonical import encode, plain
from stemma.errors import BadMessage, HarnessFailed
from stemma.tools.calling import outcome_of
from stemma.tools.failures import harness_failure, is_shipped
from stemma.tools.kept import Kept
from stemma.tools.tool import OUTPUT_CHARS, SECONDS, Tool, ToolError, ToolResult
from stemma.tools.workspace import Workspace

MOST_ARGUMENTS = 1 << 20
"""The longest arguments that are read, in characters of JSON."""
_LONG_ARGUMENTS = 1 << 14


async def run_tool(
    tools: Mapping[str, Tool], name: str, arguments: Any, workspace: Workspace | None = None
) -> ToolResult:
    """What came of the call `name(arguments)`, arguments as the model wrote them; or `HarnessFailed`."""
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
    clean = workspace.without_secrets if workspace else str
    try:
        result = await (_call_shipped(tool, values) if is_shipped(tool) else _call_users(tool, values))
    except (Exception, SystemExit) as problem:  # the boundary: whatever a tool raises is told, to the model or to us
        if (failure := harness_failure(problem, tool)) is not None:
            raise _without(failure, clean) from problem
        result = failed(_said(problem))
    result = msgspec.structs.replace(result, text=clean(result.text))
    if is_shipped(tool):
        return result
    return _shortened(result, OUTPUT_CHARS if tool.output_chars is None else tool.output_chars)


def _said(problem: BaseException) -> str:
    """What an exception says of itself; its type, if that is nothing or fails in its turn."""
    try:
        return str(problem) or type(problem).__name__
    except Exception:  # noqa: BLE001  the boundary to a stranger's `__str__`
        return type(problem).__name__


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


async def _call_shipped(tool: Tool, values: dict[str, Any]) -> ToolResult:
    """Call a tool of ours, which has its own limits."""
    if _is_async(tool.run):
        return as_result(await tool.run(**values))
    if tool.quick:
        return as_result(tool.run(**values))
    outcome = await outcome_of(lambda: as_result(tool.run(**values)))
    if outcome.problem is not None:
        raise outcome.problem
    result: ToolResult = outcome.value
    return result


async def _call_users(tool: Tool, values: dict[str, Any]) -> ToolResult:
    """Call a user's own tool, within its time."""

    async def run_async() -> ToolResult:
        return as_result(await tool.run(**values))

    def run() -> ToolResult:
        return as_result(tool.run(**values))

    seconds = SECONDS if tool.seconds is None else tool.seconds
    outcome = await outcome_of(run_async if _is_async(tool.run) else run, seconds=seconds, quick=tool.quick)
    problem = outcome.problem
    if problem is None:
        result: ToolResult = outcome.value
        return result
    # What means something else to whoever calls us (the end of an iteration, of a task, of the process) is renamed.
    if not isinstance(problem, Exception) or isinstance(problem, StopIteration | StopAsyncIteration):
        raise ToolError(f"{type(problem).__name__}: {problem}".removesuffix(": ")) from problem
    raise problem


def _without(failure: HarnessFailed, clean: Callable[[str], str]) -> HarnessFailed:
    """A failure whose text holds no secrets."""
    text = clean(str(failure))
    return failure if text == str(failure) else HarnessFailed(f"{type(failure).__name__}: {text}")


def _shortened(result: ToolResult, most: int) -> ToolResult:
    """The head and the tail of what a tool said, if it said more than the model is to read."""
    if len(result.text) <= most:
        return result
    kept = Kept(most)
    kept.add(result.text.encode("utf-8", "surrogatepass"))
    text, cut = kept.text()
    return msgspec.structs.replace(result, text=text, cut=result.cut + cut)


def as_result(value: Any) -> ToolResult:
    """Whatever a tool returned, as text for the model."""
    if isinstance(value, ToolResult):
        if not isinstance(value.text, str):
            raise ToolError(f"the text of a ToolResult must be a string, not {type(value.text).__name__}")
        return value
    if isinstance(value, str):
        return ToolResult(text=value)
    try:
        return ToolResult(text=encode(plain(msgspec.to_builtins(value), "result")).decode("utf-8", "surrogatepass"))
    except (BadMessage, TypeError):
        return ToolResult(text=str(value))
