"""From settings to an agent: its tools, its limits, its fence, and what it is told.

    async with open_tools(settings) as tools:
        agent = build_agent(settings, model, tools)

Tools are those of the toolsets, of the user's files, of installed packages and of MCP servers; the servers run as long
as the block. Our own keys are taken out of all that tools return. `tests/cli/test_building.py` proves it.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stemma.agent.agent import Agent
from stemma.agent.compaction import Compaction
from stemma.agent.limits import Limits
from stemma.cli.choosing import credentials
from stemma.cli.settings import Settings
from stemma.errors import BadRecord
from stemma.models.protocol import Model
from stemma.tools.sandbox import ResourceLimits, choose_sandbox
from stemma.tools.toolsets import Chosen, choose_tools
from stemma.tools.workspace import Workspace

if TYPE_CHECKING:
    from stemma.tools.tool import Tool
    from stemma.tools.web import WebAccess


@asynccontextmanager
async def open_tools(settings: Settings) -> AsyncIterator[Chosen]:
    """The tools that the settings name."""
    async with AsyncExitStack() as stack:
        extra = own_tools(settings)
        servers = settings.section("mcp")
        if servers:
            from stemma.tools.mcp import McpServer, mcp_tools

            extra += await stack.enter_async_context(mcp_tools([McpServer(name, **of) for name, of in servers.items()]))
        yield choose_tools(settings.get("agent.toolsets"), web=_web(settings), extra=extra)


def own_tools(settings: Settings) -> "list[Tool]":
    """The user's tools: of files, and of installed packages."""
    from stemma.tools.user_tools import installed_tools, load_tools

    return [tool for file in settings.get("agent.tools") for tool in load_tools(Path(file))] + installed_tools()


def build_agent(
    settings: Settings,
    model: Model,
    tools: Chosen,
    *,
    params: Mapping[str, Any] | None = None,
    workspace: Path | None = None,
) -> Agent:
    """The agent that the settings describe; `workspace` is where its tools work, else each conversation has its own."""
    agent = Agent(
        model=model,
        tools=tools.tools,
        system=settings.get("agent.system"),
        ephemeral=settings.get("agent.ephemeral"),
        prefill=_prefill(settings.get("agent.prefill")),
        params=params,
        limits=Limits(**{name: settings.get(f"agent.{name}") for name in ("turns", "tokens", "seconds", "cost")}),
        compaction=Compaction(
            threshold=settings.get("agent.compaction_threshold"), keep_last=settings.get("agent.compaction_keep_last")
        ),
        workspace=lambda: _workspace(settings, workspace),
        save_trajectories=settings.get("agent.save_trajectories"),
    )
    if tools.delegates:
        from stemma.agent.subagent import delegation

        agent.offer(delegation(agent, tools.tools))
    return agent


def _workspace(settings: Settings, root: Path | None) -> Workspace:
    sandbox = settings.section("sandbox")
    kind, image, network = (sandbox.pop(name) for name in ("kind", "image", "network"))
    asked = (kind, image, network) != ("auto", None, False)
    # Else it is chosen when first needed: a conversation that runs no command needs no fence to be installed.
    fence = choose_sandbox(kind, image=image, network=network) if asked else None
    return Workspace(root=root, sandbox=fence, limits=ResourceLimits(**sandbox), secrets=credentials(settings))


def _prefill(file: str | None) -> list[dict[str, Any]]:
    if file is None:
        return []
    from stemma.core.message import Message
    from stemma.formats.jsonl import from_json

    found = from_json(Path(file).read_bytes())
    if not isinstance(found, list):
        raise BadRecord("a prefill file holds a JSON list of messages", file)
    return [Message.of(message).to_dict() for message in found]


def _web(settings: Settings) -> "WebAccess | None":
    web = settings.section("web")
    key_variable = web.pop("api_key_env")
    if not (web["search_url"] or key_variable):
        return None
    from stemma.tools.web import WebAccess

    return WebAccess(**web, api_key=os.environ.get(key_variable) if key_variable else None)
