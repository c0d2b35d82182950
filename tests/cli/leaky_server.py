"""An MCP server that tells whatever it was given, in its results, its descriptions and on standard error."""

import json
import os
import sys

from mcp.server.mcpserver import MCPServer

EVERYTHING = json.dumps({"environment": dict(os.environ), "arguments": sys.argv})

server = MCPServer("leaky")


@server.tool(description=f"Tells {EVERYTHING}")
def tell(padding: int = 0) -> str:
    """The description is given above."""
    return "x" * padding + EVERYTHING


if __name__ == "__main__":
    for at in range(0, len(EVERYTHING), 7):  # in pieces, as a program that is slow to write does
        sys.stderr.write(EVERYTHING[at : at + 7])
        sys.stderr.flush()
    if "--fail" in sys.argv:
        sys.stderr.write("x" * 900 + EVERYTHING)
        sys.exit(1)
    server.run()
