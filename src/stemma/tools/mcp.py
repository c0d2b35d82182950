"""Tools of MCP servers, by the official SDK: programs that are started here, or endpoints over HTTP.

    async with mcp_tools([McpServer("git", "mcp-server-git")]) as tools:
        agent = Agent(model=model, tools=tools)

A tool is called `mcp_<server>_<tool>` and belongs to the toolset `mcp-<server>`; its schema is the server's, and so is
the check of its arguments. Which tools there are is decided at the start: a server that changes its list changes
nothing here. A server that does not start is an error; one that ends, floods or stays silent later is a failed call,
and breaks nothing else. `tests/tools/test_mcp.py` proves it with real servers.
"""

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from stemma.errors import MissingExtra, StemmaError
from stemma.redact import NOTHING_SECRET, Redactor, secrets_in
from stemma.tools.kept import Kept
from stemma.tools.mcp_process import ServerProcess
from stemma.tools.tool import Tool, ToolError, ToolResult

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as Offered

_LONGEST_NAME = 64
_MOST_PAGES = 100


class McpFailed(StemmaError):
    """An MCP server that could not be started, or did not say which tools it has."""


class McpServer(msgspec.Struct, frozen=True):
    """A server of tools: a command to start, or the URL where one runs."""

    name: str
    command: str = ""
    args: Sequence[str] = ()
    env: dict[str, str] = {}
    """All of the environment it gets, beside PATH."""
    url: str | None = None
    headers: dict[str, str] = {}
    """Sent with every request to `url`, such as an authorization."""
    seconds: float = 60.0
    """How long it may take to start, and to answer a call."""
    output_chars: int = 30_000
    """How much of a result the model gets: head and tail, the cut counted."""


@asynccontextmanager
async def mcp_tools(servers: Iterable[McpServer], redactor: Redactor = NOTHING_SECRET) -> AsyncIterator[list[Tool]]:
    """The tools of all servers, which run until the block is left.

    What a server says is cleaned of its own credentials and of what `redactor` knows: results, complaints, and also
    the descriptions and schemas of its tools, which a model sees.
    """
    _check_installed()
    connections = [_Connection(server, redactor) for server in _distinct(servers)]
    try:
        offered = await asyncio.gather(*(connection.tools() for connection in connections))
        found = [(one, tool) for one, tools in zip(connections, offered, strict=True) for tool in tools]
        names = tool_names([(one.server.name, tool.name) for one, tool in found])
        yield [_tool(one, tool, name) for (one, tool), name in zip(found, names, strict=True)]
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


def _check_installed() -> None:
    try:
        from mcp import Client  # noqa: F401
    except ImportError as problem:
        raise MissingExtra("tools of MCP servers need the MCP SDK: pip install 'stemmata[mcp]'") from problem


def _distinct(servers: Iterable[McpServer]) -> list[McpServer]:
    given = list(servers)
    name, times = next(iter(Counter(server.name for server in given).most_common(1)), ("", 0))
    if times > 1:
        raise McpFailed(f"{times} MCP servers are named {name!r}; give each a name of its own")
    if nowhere := next((server for server in given if bool(server.command) == bool(server.url)), None):
        raise McpFailed(f"the MCP server {nowhere.name!r} needs either a command or a url")
    return given


def tool_names(tools: Sequence[tuple[str, str]]) -> list[str]:
    """What each (server, tool) is called here: a name that every API takes, the same in every run.

    >>> tool_names([("git", "log"), ("my.fs", "read"), ("my_fs", "read")])
    ['mcp_git_log', 'mcp_my_fs_read_1b82ce26', 'mcp_my_fs_read_0ccfb7e0']
    """
    plain = [re.sub(r"[^a-zA-Z0-9_-]", "_", f"mcp_{server}_{tool}") for server, tool in tools]
    times = Counter(plain)
    marks = [hashlib.sha256("\0".join(pair).encode("utf-8", "surrogatepass")).hexdigest()[:8] for pair in tools]
    return [
        name if times[name] == 1 and len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 9]}_{mark}"
        for name, mark in zip(plain, marks, strict=True)
    ]


class _Connection:
    """One server, in a task of its own: what breaks in there breaks nothing here."""

    def __init__(self, server: McpServer, redactor: Redactor) -> None:
        self.server = server
        given = {"env": server.env, "headers": server.headers, "args": server.args, "url": server.url}
        self.redactor = redactor.plus(secrets_in(given, opaque=True))
        # In a complaint nothing of the configuration is of use, whatever its name.
        self._strict = self.redactor.plus([*server.env.values(), *server.headers.values()])
        self._complaint: Callable[[], str] = str
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task = asyncio.ensure_future(self._live())

    async def tools(self) -> "list[Offered]":
        """What the server offers, or `McpFailed`."""
        try:
            async with asyncio.timeout(self.server.seconds):
                client = await asyncio.shield(self._client)
                return await _listed(client)
        except Exception as problem:  # the boundary: whatever the SDK raises is one server that failed
            raise McpFailed(f"the MCP server {self.server.name!r} did not start: {self._why(problem)}") from problem

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """What came of a call, or `ToolError`."""
        from mcp import MCPError

        _check_sendable(arguments)
        client = self._client.result()
        try:
            async with asyncio.timeout(self.server.seconds):
                return _result(await client.call_tool(tool, arguments), self.server.output_chars, self.redactor)
        except TimeoutError:
            raise ToolError(f"{self.server.name} did not answer in {self.server.seconds:g} seconds") from None
        except (MCPError, RuntimeError, ValueError) as problem:  # the last: an answer that is none
            raise ToolError(f"{self.server.name}: {self._why(problem)}") from problem

    async def close(self) -> None:
        """End the server."""
        self._leaving.set()
        if not self._client.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if self._client.done() and not self._client.cancelled():
            self._client.exception()  # told already, by `tools`

    async def _live(self) -> None:
        from mcp import Client

        try:
            async with AsyncExitStack() as stack:
                streams = await self._transport(stack)
                client = await stack.enter_async_context(Client(streams))
                self._client.set_result(client)
                await self._leaving.wait()
        except Exception as problem:  # noqa: BLE001  the boundary: `tools` tells what went wrong at the start
            if not self._client.done():
                self._client.set_exception(problem)

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if self.server.url is None:
            process = await ServerProcess.start([self.server.command, *self.server.args], self.server.env, self._strict)
            self._complaint = process.complaint
            return process.streams()
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        http = await stack.enter_async_context(create_mcp_http_client(headers=dict(self.server.headers)))
        return streamable_http_client(self.server.url, http_client=http)

    def _why(self, problem: BaseException) -> str:
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        said = f"no answer in {self.server.seconds:g} seconds" if isinstance(problem, TimeoutError) else str(problem)
        said = self._strict.text(said) or type(problem).__name__
        return "\n".join(filter(None, [said, self._complaint()]))


async def _listed(client: "Client") -> "list[Offered]":
    found: dict[str, Offered] = {}
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found = {**{tool.name: tool for tool in page.tools}, **found}
        cursor = page.next_cursor
        if cursor is None:
            return list(found.values())
    raise McpFailed(f"its list of tools does not end after {_MOST_PAGES} pages")


def _tool(connection: _Connection, offered: "Offered", name: str) -> Tool:
    async def run(**arguments: Any) -> ToolResult:
        return await connection.call(offered.name, arguments)

    return Tool(
        name=name,
        description=connection.redactor.text(offered.description or offered.title or offered.name),
        parameters=connection.redactor.value(dict(offered.input_schema)),
        run=run,
        toolset=f"mcp-{connection.server.name}",
    )


def _check_sendable(arguments: dict[str, Any]) -> None:
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as problem:
        raise ToolError(f"the arguments cannot be sent as JSON: {problem}") from problem


def _result(result: "CallToolResult", most: int, redactor: Redactor) -> ToolResult:
    text = "\n".join(map(_text, result.content))
    if not result.content and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    kept = Kept(most, redactor)
    kept.add(text.encode("utf-8", "replace"))
    kept.end()
    shown, cut = kept.text()
    return ToolResult(text=f"Error: {shown}" if result.is_error else shown, ok=not result.is_error, cut=cut)


def _text(block: "ContentBlock") -> str:
    if block.type == "text":
        return block.text
    if block.type == "resource":
        return getattr(block.resource, "text", f"[{block.resource.uri}]")
    return f"[{block.uri}]" if block.type == "resource_link" else f"[{block.type}]"
