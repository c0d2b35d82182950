"""Which tools there are, in which groups, and how one chooses among them by name.

    >>> [tool.name for tool in choose_tools(["todo", "read_file"]).tools]
    ['read_file', 'todo']

A name is a toolset, one of several together (`all`, `safe`), a single tool, or a toolset or tool of the user's own. The
order of what is chosen, and of all statistics, is that of `TOOL_TO_TOOLSET_MAP`; the user's tools follow in theirs.
`tests/tools/test_toolsets.py` proves it.
"""

from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from stemma.errors import NotFound, StemmaError
from stemma.tools import files, terminal, todo
from stemma.tools.tool import Tool
from stemma.tools.web import web_tools
from stemma.tools.web_access import WebAccess, WebNotSet

TOOL_TO_TOOLSET_MAP: dict[str, str] = {
    "terminal": "terminal",
    "process": "terminal",
    "read_file": "file",
    "write_file": "file",
    "patch": "file",
    "search_files": "file",
    "web_search": "web",
    "web_extract": "web",
    "todo": "todo",
    "delegate_task": "delegation",
}
"""The toolset of every shipped tool, in the order of all statistics."""

TOOLSETS: dict[str, tuple[str, ...]] = {
    **{
        toolset: tuple(name for name, its in TOOL_TO_TOOLSET_MAP.items() if its == toolset)
        for toolset in dict.fromkeys(TOOL_TO_TOOLSET_MAP.values())
    },
    "all": tuple(TOOL_TO_TOOLSET_MAP),
    "safe": tuple(name for name, toolset in TOOL_TO_TOOLSET_MAP.items() if toolset in ("file", "todo")),
}
"""The shipped tools of each toolset; `all` has every one, `safe` those that run no commands and reach no network."""


class NoSuchTool(NotFound):
    """A name that is neither a tool nor a toolset."""


class ToolTaken(StemmaError, ValueError):
    """Two tools of one name."""


class Chosen(msgspec.Struct, frozen=True):
    """Tools to give to an agent."""

    tools: list[Tool]
    delegates: bool = False
    """Whether `delegate_task` was asked for too; it works with a model, so `agent.subagent.delegation` makes it."""


def choose_tools(names: Iterable[str], *, web: WebAccess | None = None, extra: Iterable[Tool] = ()) -> Chosen:
    """The tools that `names` stand for; `extra` are the user's own."""
    own = _by_name(extra)
    wanted = {tool for name in names for tool in _named(name, own)}
    shipped = {tool.name: tool for tool in (*terminal.TOOLS, *files.TOOLS, *todo.TOOLS)}
    if asked := [name for name in TOOLSETS["web"] if name in wanted]:
        shipped |= {tool.name: tool for tool in _web(asked[0], web)}
    tools = [shipped[name] for name in TOOL_TO_TOOLSET_MAP if name in wanted and name in shipped]
    return Chosen([*tools, *(tool for name, tool in own.items() if name in wanted)], "delegate_task" in wanted)


def _by_name(extra: Iterable[Tool]) -> dict[str, Tool]:
    own: dict[str, Tool] = {}
    for tool in extra:
        if tool.name in TOOL_TO_TOOLSET_MAP or tool.name in own:
            who = "stemma has one" if tool.name in TOOL_TO_TOOLSET_MAP else "another of yours is called so"
            raise ToolTaken(f"a tool of yours cannot be called {tool.name!r}: {who}; give it another name")
        own[tool.name] = tool
    return own


def _named(name: str, own: dict[str, Tool]) -> Iterable[str]:
    """The names of the tools that one name stands for."""
    found = [tool.name for tool in own.values() if name in (tool.toolset, tool.name)]
    found += TOOLSETS.get(name, [name] if name in TOOL_TO_TOOLSET_MAP else [])
    if found:
        return found
    known = list(dict.fromkeys([*TOOLSETS, *TOOL_TO_TOOLSET_MAP, *(tool.toolset for tool in own.values()), *own]))
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise NoSuchTool(f"there is no tool or toolset {name!r}; {hint}There are: {', '.join(known)}")


def _web(name: str, web: WebAccess | None) -> tuple[Tool, ...]:
    if web is None:
        raise WebNotSet(
            f"{name} needs to know how to reach the web: set web.search_url to a SearXNG instance, or web.provider and "
            "web.api_key_env to a search service and the variable that holds its key"
        )
    return web_tools(web)
