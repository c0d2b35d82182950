"""A chat from the command line's words: a new conversation, or one that goes on.

A conversation that goes on takes what its first start said of model, tools and parameters, unless flags say otherwise
now. What decides about this machine (files of tools, the sandbox, the network, the workspace) is never taken from a
store: stores travel. `tests/cli/test_chat.py` proves it.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from stemma.agent.agent import Agent
from stemma.cli.agent_options import AgentFlags
from stemma.cli.building import build_agent, open_tools
from stemma.cli.chat_edits import BadCommand
from stemma.cli.choosing import choose_model
from stemma.cli.conversing import Session
from stemma.cli.settings import Settings, load_settings
from stemma.core.graph import MessageGraph
from stemma.formats.files import COMPLETED_FILE, FAILED_FILE, Written
from stemma.redact import MASK, secrets_in, without_secrets
from stemma.store import open_store


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a store notes of a chat, for its next start."""

    model: str | None = None
    base_url: str | None = None
    toolsets: list[str] | None = None
    params: dict[str, Any] = {}


@asynccontextmanager
async def open_session(flags: AgentFlags, *, name: str | None, resume: str | None) -> AsyncIterator[Session]:
    """The conversation that is asked for, until the block ends."""
    settings = load_settings(flags.settings)
    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_store(settings.get("store"), create=resume is None))
        graph = store.load(resume) if resume else MessageGraph()
        about = store.metadata(resume) if resume else {}
        if resume:
            flags = recalled(flags, _notes(about), settings, graph)
            settings = load_settings(flags.settings)
        tools = await stack.enter_async_context(open_tools(settings))

        def agent_with(model: str | None) -> Agent:
            base_url = None if model in settings.section("models") else flags.base_url
            chosen = choose_model(settings, model, base_url)
            stack.push_async_callback(chosen.close)
            secrets = secrets_in(flags.base_url)
            return build_agent(settings, chosen, tools, params=flags.params, workspace=flags.workspace, secrets=secrets)

        talk = await stack.enter_async_context(agent_with(None).start(graph, _written(about)))
        yield Session(store, resume or name or fresh_name(), talk, {**about, **noted(flags)}, agent_with)


def recalled(flags: AgentFlags, notes: Notes, settings: Settings, graph: MessageGraph) -> AgentFlags:
    """The flags of a conversation that goes on: what is said now, else what it was started with."""
    model = notes.model or _last_model(graph, settings)
    known = {"model": model, "agent.toolsets": notes.toolsets}
    # A configured model has a key, and a store must not say where that goes.
    same_place = "model" not in flags.settings and model not in settings.section("models")
    base_url, params = flags.base_url or (notes.base_url if same_place else None), {**notes.params, **flags.params}
    if MASK in f"{base_url} {params}":
        what = "--base-url" if MASK in str(base_url) else "--param"
        raise BadCommand(f"the secret that this conversation was started with is not kept; give it again with {what}")
    return msgspec.structs.replace(
        flags,
        settings={**{key: value for key, value in known.items() if value is not None}, **flags.settings},
        base_url=base_url,
        params=params,
    )


def noted(flags: AgentFlags) -> dict[str, Any]:
    """What to note beside the graph: no secret, which must be given again."""
    said = flags.settings
    base_url, params = without_secrets(flags.base_url), without_secrets(flags.params)
    notes = Notes(said.get("model"), base_url, said.get("agent.toolsets"), params)
    return {"chat": msgspec.to_builtins(notes)}


def fresh_name() -> str:
    """A name for a conversation that was given none."""
    return f"chat-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _notes(about: dict[str, Any]) -> Notes:
    """What the last start noted; nothing if something else made the conversation."""
    try:
        return msgspec.convert(about.get("chat", {}), Notes)
    except msgspec.ValidationError:
        return Notes()


def _written(about: dict[str, Any]) -> Written | None:
    """The trajectory line of the last turn. A store travels, and must not name other files than those we write."""
    match about.get("trajectory"):
        case [str(file), str(digest)] if file in (COMPLETED_FILE, FAILED_FILE):
            return Written(file, digest)
    return None


def _last_model(graph: MessageGraph, settings: Settings) -> str | None:
    """Who answered last, if nothing else says whom to ask."""
    last = graph.last_call()
    return last.call.model if last and settings.get("model") is None else None
