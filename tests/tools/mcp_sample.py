"""A small MCP server by the SDK, for the tests: `python mcp_sample.py [--http PORT]`."""

import os
import sys

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("sample")


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool(name="read.note")
def read_note(title: str) -> str:
    """Read a note."""
    return f"note {title!r}"


@server.tool()
def environment() -> list[str]:
    """Name what is set in the environment."""
    return sorted(os.environ)


@server.tool()
def picture() -> list[str | Image]:
    """Give a picture."""
    return ["here it is", Image(data=b"\x89PNG", format="png")]


@server.tool()
def broken() -> str:
    """Fail."""
    raise ToolError("out of order")


@server.tool()
def much(characters: int) -> str:
    """Say much."""
    return "x" * characters


if __name__ == "__main__":
    if sys.argv[1:2] == ["--http"]:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run()
