"""From settings to an agent: its tools, its limits, its fence, and what it is told.

    async with open_tools(settings) as tools:
        agent = build_agent(settings, model, tools)

Tools are those of the toolsets, where those of installed packages can be named as well, and all of the user's files and
of MCP servers; the servers run as long as the block. Our own keys are taken out of all that tools return.
`tests/cli/test_building.py` proves it.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stemma.agent.agent import Agent
from stemma.agent.compaction import Compaction
from stemma.agent.limits import Limits
from stemma.cli.choosing import LOCAL, credentials
from stemma.cli.places import user_cache, user_config, user_state
from stemma.cli.settings import Settings
from stemma.errors import BadRecord
from stemma.models.protocol import Model
from stemma.redact import Redactor, secrets_in
from stemma.tools.protected import Protected, store_files
from stemma.tools.sandbox import ResourceLimits, choose_sandbox
from stemma.tools.tool import Tool
from stemma.tools.toolsets import Chosen, choose_tools
from stemma.tools.workspace import Workspace

if TYPE_CHECKING:
    from stemma.tools.web_access import WebAccess

Choose = Callable[[Sequence[str]], Chosen]
"""The tools that names of toolsets or tools stand for."""


@asynccontextmanager
async def open_tools(settings: Settings) -> AsyncIterator[Chosen]:
    """The tools that the settings name."""
    async with open_toolbox(settings) as choose:
        yield choose(toolsets_of(settings))


def toolsets_of(settings: Settings) -> list[str]:
    """What is offered: nothing to the embedded model unless somebody says so, since it knows one tool at a time."""
    small = settings.get("model") == LOCAL and settings.origin("agent.toolsets") == "default"
    named: list[str] = [] if small else settings.get("agent.toolsets")
    return named


@asynccontextmanager
async def open_toolbox(settings: Settings) -> AsyncIterator[Choose]:
    """All tools there are, to be chosen from by name."""
    from stemma.tools.user_tools import installed_tools, load_tools

    asked = [_limited(tool, settings) for file in settings.get("agent.tools") for tool in load_tools(Path(file))]
    async with AsyncExitStack() as stack:
        servers, redactor = settings.section("mcp"), Redactor(credentials(settings))
        if servers:
            from stemma.tools.mcp import McpServer, mcp_tools

            given = [McpServer(name, **_given(of)) for name, of in servers.items()]
            asked += await stack.enter_async_context(mcp_tools(given, redactor))
        installed = [_limited(tool, settings) for tool in installed_tools()]
        named, extra = [tool.name for tool in asked], [_redacted(tool, redactor) for tool in (*asked, *installed)]
        yield lambda names: choose_tools([*names, *named], web=_web(settings), extra=extra)


def _limited(tool: Tool, settings: Settings) -> Tool:
    """A user's own tool with the limits that the settings say, unless it has its own."""
    seconds, chars = settings.get("agent.tool_seconds"), settings.get("agent.tool_output_chars")
    return msgspec.structs.replace(
        tool,
        seconds=seconds if tool.seconds is None else tool.seconds,
        output_chars=chars if tool.output_chars is None else tool.output_chars,
    )


def _redacted(tool: Tool, redactor: Redactor) -> Tool:
    """The tool with a description that tells no secret: the default of a parameter may be one."""
    told = {"description": tool.description, "parameters": tool.parameters}
    clean = redactor.value(told)
    return tool if clean is told else msgspec.structs.replace(tool, **clean)


def build_agent(
    settings: Settings,
    model: Model,
    tools: Chosen,
    *,
    params: Mapping[str, Any] | None = None,
    workspace: Path | None = None,
    secrets: Iterable[str] = (),
    runs: Path | None = None,
) -> Agent:
    """The agent that the settings describe; `workspace` is where its tools work, else each conversation has its own.

    secrets: what must not be seen beside the credentials of the settings, such as a key in a flag
    runs: a folder that tools may not write below, if it is in the workspace
    """
    agent = Agent(
        model=model,
        tools=tools.tools,
        system=settings.get("agent.system") or _small_system(settings, tools),
        ephemeral=settings.get("agent.ephemeral"),
        prefill=_prefill(settings.get("agent.prefill")),
        params=params,
        limits=Limits(**{name: settings.get(f"agent.{name}") for name in ("turns", "tokens", "seconds", "cost")}),
        compaction=Compaction(
            threshold=settings.get("agent.compaction_threshold"), keep_last=settings.get("agent.compaction_keep_last")
        ),
        workspace=_workspaces(settings, workspace, [*secrets, *secrets_in(params or {})], runs),
        save_trajectories=settings.get("agent.save_trajectories"),
    )
    if tools.delegates:
        from stemma.agent.subagent import delegation

        agent.offer(delegation(agent, tools.tools))
    return agent


def _small_system(settings: Settings, tools: Chosen) -> str:
    """The embedded model needs to be told to be brief, and worked examples of the tools it is offered."""
    if settings.get("model") != LOCAL:
        return ""
    if not tools.tools:
        return "You are a helpful assistant. Answer in one short sentence."
    from stemma.agent.prompts import examples_for, small_system

    return small_system(example for tool in tools.tools for example in examples_for(tool.name))


def _protected(settings: Settings, runs: Path | None) -> Protected:
    """What no tool may write: the store, the runs, code that we load, and what the user keeps for stemma."""
    own = (user_config(os.environ).parent, user_state(os.environ), user_cache(os.environ))
    files = (*store_files(settings.get("store")), *map(Path, settings.get("agent.tools")))
    return Protected(files, (*own, runs) if runs else own)


def _workspaces(
    settings: Settings, root: Path | None, more_secrets: Iterable[str], runs: Path | None
) -> Callable[[], Workspace]:
    """Makes the place of each conversation; what the settings say is looked up once."""
    sandbox = settings.section("sandbox")
    kind, image, network = (sandbox.pop(name) for name in ("kind", "image", "network"))
    asked = (kind, image, network) != ("auto", None, False)
    limits, secrets = ResourceLimits(**sandbox), Redactor([*credentials(settings), *more_secrets])
    protected = _protected(settings, runs)

    def workspace() -> Workspace:
        # Else it is chosen when first needed: a conversation that runs no command needs no fence to be installed.
        fence = choose_sandbox(kind, image=image, network=network) if asked else None
        return Workspace(root=root, sandbox=fence, limits=limits, secrets=secrets, protected=protected)

    return workspace


def _prefill(file: str | None) -> list[dict[str, Any]]:
    if file is None:
        return []
    from stemma.core.message import Message
    from stemma.formats.jsonl import check_keys, from_json

    text = Path(file).read_bytes()
    found = from_json(text)
    try:
        check_keys(text)
    except BadRecord as problem:
        raise BadRecord(problem.problem, file) from None
    if not isinstance(found, list):
        raise BadRecord("a prefill file holds a JSON list of messages", file)
    return [Message.of(message).to_dict() for message in found]


def _web(settings: Settings) -> "WebAccess | None":
    web = _given(settings.section("web"))
    key_variable = web.pop("api_key_env", None)
    if not (key_variable or web["search_url"]):
        return None
    from stemma.tools.web_access import WebAccess

    key = os.environ.get(key_variable or "", "")
    return WebAccess(**web, api_key=key, redactor=Redactor(credentials(settings)))


def _given(section: dict[str, Any]) -> dict[str, Any]:
    """Without what nobody has set."""
    return {name: value for name, value in section.items() if value is not None}
