"""Tools of MCP servers, by the official SDK: programs that are started here, or endpoints over HTTP.

    async with mcp_tools([McpServer("git", "mcp-server-git")]) as tools:
        agent = Agent(model=model, tools=tools)

A tool is called `mcp_<server>_<tool>` and belongs to the toolset `mcp-<server>`; its schema is the server's, and so is
the check of its arguments. Which tools there are is decided at the start: a server that changes its list changes
nothing here. A server that does not start is an error.

One that ends, floods or no longer answers later is gone: the calls under way fail with `ServerGone`, which is no result
for the model (`HarnessFailed`), and the next call starts it anew, after a growing wait and not more than
`MOST_RESTARTS` times in a row. A call that takes too long while the server still answers a ping is a failed call.
`tests/tools/test_mcp.py` proves it with real servers.
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

from stemma.errors import HarnessFailed, MissingExtra, StemmaError
from stemma.redact import NOTHING_SECRET, Redactor, secrets_in
from stemma.tools.kept import Kept
from stemma.tools.mcp_process import ServerProcess
from stemma.tools.tool import Tool, ToolError, ToolResult

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as Offered

MOST_RESTARTS = 5
"""How often in a row a server is started anew without having answered a call."""
_FIRST_WAIT = 0.5
"""Seconds before the second restart in a row; the first is at once, each further wait is about twice as long."""
_TO_ANSWER = 10.0
"""How long a server may take to answer a ping."""
_SAID_BY_SDK = ("Connection closed", "Session terminated", "Server returned an error response")
"""Errors that no server has sent: the SDK says them in its place, the latter two of one over HTTP."""
_LONGEST_NAME = 64
_MOST_PAGES = 100


class McpFailed(StemmaError):
    """An MCP server that could not be started, or did not say which tools it has."""


class ServerGone(HarnessFailed):
    """An MCP server that has ended or no longer answers."""


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
    """One server, which is started anew when it is gone."""

    def __init__(self, server: McpServer, redactor: Redactor) -> None:
        self.server = server
        given = {"env": server.env, "headers": server.headers, "args": server.args, "url": server.url}
        self.redactor = redactor.plus(secrets_in(given, opaque=True))
        # In a complaint nothing of the configuration is of use, whatever its name.
        self._strict = self.redactor.plus([*server.env.values(), *server.headers.values()])
        self._link = _Link(server, self._strict)
        self._restarting = asyncio.Lock()
        self._restarts = 0
        """How often it was started anew since it last answered a call."""

    async def tools(self) -> "list[Offered]":
        """What the server offers, or `McpFailed`."""
        try:
            async with asyncio.timeout(self.server.seconds):
                return await _listed(await self._link.client())
        except Exception as problem:  # the boundary: whatever the SDK raises is one server that failed
            why = self._link.why(problem)
            raise McpFailed(f"the MCP server {self.server.name!r} did not start: {why}") from problem

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """What came of a call; `ToolError` if the server refused it, `ServerGone` if there is no server."""
        _check_sendable(arguments)
        link = await self._connected()
        try:
            async with asyncio.timeout(self.server.seconds):
                answer = await (await link.client()).call_tool(tool, arguments)
        except Exception as problem:  # the boundary: the SDK raises what it likes
            if not await link.serves(problem):
                await link.close()
                raise ServerGone(f"the MCP server {self.server.name!r} is gone: {link.why(problem)}") from problem
            self._restarts = 0
            if isinstance(problem, TimeoutError):
                raise ToolError(f"{self.server.name} did not answer in {self.server.seconds:g} seconds") from None
            raise ToolError(f"{self.server.name}: {link.why(problem)}") from problem
        self._restarts = 0
        return _result(answer, self.server.output_chars, self.redactor)

    async def close(self) -> None:
        """End the server."""
        await self._link.close()

    async def _connected(self) -> "_Link":
        """The link to a server that runs, as far as is known."""
        async with self._restarting:  # many calls find it gone, and one of them starts it
            if not self._link.alive:
                await self._restart()
            return self._link

    async def _restart(self) -> None:
        await self._link.close()
        name = self.server.name
        if self._restarts >= MOST_RESTARTS:
            raise ServerGone(f"the MCP server {name!r} was started {MOST_RESTARTS} times in vain; see what it lacks")
        await asyncio.sleep(_FIRST_WAIT * (2**self._restarts - 1))
        self._restarts += 1
        link = self._link = _Link(self.server, self._strict)
        try:
            async with asyncio.timeout(self.server.seconds):
                await link.client()
        except Exception as problem:  # the boundary: whatever the SDK raises is one server that failed
            await link.close()
            raise ServerGone(f"the MCP server {name!r} did not start again: {link.why(problem)}") from problem


class _Link:
    """A server from its start to its end, in a task of its own: what breaks in there breaks nothing here."""

    def __init__(self, server: McpServer, redactor: Redactor) -> None:
        """`redactor` cleans what the server complains of."""
        self._server, self._redactor = server, redactor
        self._complaint: Callable[[], str] = str
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task = asyncio.ensure_future(self._live())

    @property
    def alive(self) -> bool:
        """Whether it is still there, as far as is known."""
        return not self._task.done() and not self._leaving.is_set()

    async def client(self) -> "Client":
        """The SDK's side of it, once it has started."""
        return await asyncio.shield(self._client)

    async def serves(self, problem: Exception) -> bool:
        """Whether the server is still there after a call that failed."""
        from mcp import MCPError

        if not self.alive or self._closed(problem):
            return False
        if not isinstance(problem, TimeoutError):
            return isinstance(problem, MCPError | RuntimeError | ValueError)  # the last: an answer that is none
        try:
            async with asyncio.timeout(min(self._server.seconds, _TO_ANSWER)):
                await (await self.client()).session.send_ping()
        except TimeoutError:
            return False
        except MCPError as refused:  # a server that does not know pings has answered, too
            return not self._closed(refused)
        return True

    def _closed(self, problem: Exception) -> bool:
        """Whether the SDK says in the server's place that it is not there."""
        from mcp import MCPError

        said = _SAID_BY_SDK if self._server.url else _SAID_BY_SDK[:1]
        return isinstance(problem, MCPError) and problem.message in said

    def why(self, problem: BaseException) -> str:
        """What went wrong, with what the server itself complained of."""
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        said = f"no answer in {self._server.seconds:g} seconds" if isinstance(problem, TimeoutError) else str(problem)
        said = self._redactor.text(said) or type(problem).__name__
        return "\n".join(filter(None, [said, self._complaint()]))

    async def close(self) -> None:
        """End the server."""
        self._leaving.set()
        if not self._client.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if self._client.done() and not self._client.cancelled():
            self._client.exception()  # told already, by whoever waited for it

    async def _live(self) -> None:
        from mcp import Client

        try:
            async with AsyncExitStack() as stack:
                streams = await self._transport(stack)
                client = await stack.enter_async_context(Client(streams))
                self._client.set_result(client)
                await self._leaving.wait()
        except Exception as problem:  # noqa: BLE001  the boundary: who waits for the client is told what went wrong
            if not self._client.done():
                self._client.set_exception(problem)

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if self._server.url is None:
            argv = [self._server.command, *self._server.args]
            process = await ServerProcess.start(argv, self._server.env, self._redactor)
            self._complaint = process.complaint
            watching = asyncio.ensure_future(self._leave_with(process))
            stack.callback(watching.cancel)
            return process.streams()
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        http = await stack.enter_async_context(create_mcp_http_client(headers=dict(self._server.headers)))
        return streamable_http_client(self._server.url, http_client=http)

    async def _leave_with(self, process: ServerProcess) -> None:
        await process.gone.wait()
        self._leaving.set()


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
