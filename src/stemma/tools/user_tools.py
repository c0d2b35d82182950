"""The user's own tools: of a Python file, or of installed packages.

    stemma chat --tools my_tools.py          every public function with a docstring that the file defines, or its TOOLS

    [project.entry-points."stemma.tools"]    in a package's pyproject.toml: a function, a Tool, or a list of them
    weather = "my_package.weather:forecast"

A file is run like any program of the user's, with all that this process may do: it is not behind the fence of commands.
`tests/tools/test_user_tools.py` proves it.
"""

import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from stemma.errors import StemmaError
from stemma.tools.tool import Tool, ToolError, as_tool
from stemma.tools.toolsets import TOOL_TO_TOOLSET_MAP, ToolTaken

GROUP = "stemma.tools"
"""The name under which installed packages offer tools."""


class BadTools(StemmaError):
    """A file or package whose tools cannot be used."""


def load_tools(path: Path) -> list[Tool]:
    """The tools that a Python file holds."""
    module = _run(path)
    listed = getattr(module, "TOOLS", None)
    if listed is None:
        listed = [value for name, value in vars(module).items() if not name.startswith("_") and _is_tool(value, module)]
    if not listed:
        raise BadTools(f"{path} has no tools: no public function with a docstring, and no list TOOLS")
    return _as_tools(listed, str(path))


def installed_tools() -> list[Tool]:
    """The tools that installed packages offer, in order of their entry points' names."""
    return [tool for entry in sorted(entry_points(group=GROUP)) for tool in _as_tools(_load(entry), _origin(entry))]


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadTools(f"there is no file {path} to take tools from")
    spec = spec_from_file_location(f"tools of {path.resolve()}", path)
    if spec is None or spec.loader is None:
        raise BadTools(f"{path} is no Python file; its name must end in .py")
    module = sys.modules[spec.name] = module_from_spec(spec)  # dataclasses look their own module up by its name
    try:
        spec.loader.exec_module(module)
    except Exception as problem:  # the user's file may raise anything; it is told with its place
        del sys.modules[spec.name]
        raise BadTools(f"{_place(path, problem)}: {type(problem).__name__}: {problem}") from problem
    return module


def _place(path: Path, problem: Exception) -> str:
    """The file and the line in it where its own code was, when it failed."""
    if isinstance(problem, SyntaxError) and problem.filename == str(path):
        return f"{path}:{problem.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _is_tool(value: Any, module: ModuleType) -> bool:
    if isinstance(value, Tool):
        return True
    return inspect.isfunction(value) and value.__module__ == module.__name__ and bool(inspect.getdoc(value))


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as problem:  # somebody else's package may raise anything
        raise BadTools(f"{_origin(entry)} cannot be loaded: {type(problem).__name__}: {problem}") from problem


def _origin(entry: EntryPoint) -> str:
    package = f" of the package {entry.dist.name}" if entry.dist else ""
    return f"the tool {entry.name!r}{package}"


def _as_tools(given: Any, origin: str) -> list[Tool]:
    """What a file or an entry point gave, as tools."""
    found: Iterable[Tool | Callable[..., Any]] = given if isinstance(given, list | tuple) else [given]
    return [_as_tool(one, origin) for one in found]


def _as_tool(one: Tool | Callable[..., Any], origin: str) -> Tool:
    if not isinstance(one, Tool) and not inspect.isfunction(one):
        raise BadTools(f"{origin}: {one!r:.80} is neither a function nor a Tool")
    try:
        tool = one if isinstance(one, Tool) else as_tool(one)
    except (ToolError, TypeError, NameError) as problem:  # a type that has no schema, or that is not defined
        raise BadTools(f"{origin}: {problem}") from problem
    if tool.name in TOOL_TO_TOOLSET_MAP:
        raise ToolTaken(f"{origin}: {tool.name!r} is the name of a tool of stemma; give yours another name")
    return tool
