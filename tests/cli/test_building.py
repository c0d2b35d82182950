"""From settings to an agent: every setting reaches the part that it is about."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.conftest import trust_project
from stemma.agent.compaction import Compaction
from stemma.agent.limits import Limits
from stemma.cli.building import build_agent, open_tools
from stemma.cli.settings import read_settings
from stemma.errors import BadMessage, BadRecord
from stemma.models.scripted import ScriptedModel
from stemma.tools.sandbox import NoSandbox, Unfenced

SAMPLE_SERVER = Path(__file__).parents[1] / "tools" / "mcp_sample.py"
TOOLS = '''
def shout(text: str) -> str:
    """Say it loudly.

    text: what to say
    """
    return text.upper()
'''


def call(name: str, **arguments: object) -> dict[str, object]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


@asynccontextmanager
async def built(folder: Path, script=("Hi.",), workspace: Path | None = None, **flags):
    settings = read_settings(
        {key.replace("__", "."): value for key, value in flags.items()}, {"HOME": str(folder)}, folder
    )
    async with open_tools(settings) as tools:
        yield build_agent(settings, ScriptedModel(script), tools, params={"seed": 1}, workspace=workspace)


def test_limits_compaction_and_prompts_are_as_set(tmp_path):
    async def promise():
        limits = {"agent__turns": 3, "agent__tokens": 4, "agent__seconds": 5.0, "agent__cost": 0.5}
        compaction = {"agent__compaction_threshold": 0.5, "agent__compaction_keep_last": 2}
        (tmp_path / "first.json").write_text('[{"role": "user", "content": "E"}]')
        told = {"agent__system": "S", "agent__ephemeral": "X", "agent__prefill": str(tmp_path / "first.json")}
        async with built(tmp_path, **limits, **compaction, **told) as agent:
            assert agent.setup.limits == Limits(turns=3, tokens=4, seconds=5.0, cost=0.5)
            assert agent.setup.compaction == Compaction(threshold=0.5, keep_last=2)
            await agent.run("U")
            (request,) = agent.setup.model.requests
            assert [message["content"] for message in request.messages] == ["S\n\nX", "E", "U"]
            assert request.params == {"seed": 1}

    asyncio.run(promise())


LIMITED = (
    TOOLS
    + """
from stemma.tools.tool import as_tool

def whisper(text: str) -> str:
    '''Say it softly.

    text: what to say
    '''
    return text.lower()

TOOLS = [shout, as_tool(whisper, seconds=900, output_chars=5)]
"""
)


def test_tools_of_the_users_get_the_limits_that_are_set_unless_they_have_their_own(tmp_path):
    (tmp_path / "mine.py").write_text(LIMITED)

    async def promise():
        mine = {"agent__tools": [str(tmp_path / "mine.py")], "agent__tool_seconds": 3.0, "agent__tool_output_chars": 7}
        async with built(tmp_path, **mine) as agent:
            shout, whisper = agent.setup.tools["shout"], agent.setup.tools["whisper"]
            assert (shout.seconds, shout.output_chars) == (3.0, 7)
            assert (whisper.seconds, whisper.output_chars) == (900, 5)

    asyncio.run(promise())


def test_without_settings_the_limits_are_the_agents_own(tmp_path):
    async def promise():
        async with built(tmp_path) as agent:
            assert (agent.setup.limits, agent.setup.compaction) == (Limits(), Compaction())

    asyncio.run(promise())


def test_the_users_tools_are_offered_without_being_named_and_run(tmp_path):
    async def promise():
        (tmp_path / "mine.py").write_text(TOOLS)
        asks = [call("shout", text="hi"), "Done."]
        async with built(tmp_path, asks, agent__tools=[str(tmp_path / "mine.py")], agent__toolsets=["todo"]) as agent:
            assert list(agent.setup.tools) == ["todo", "shout"]
            conversation = await agent.run("U")
            assert conversation.graph[2]["content"] == "HI"

    asyncio.run(promise())


def test_delegation_is_offered_and_its_subagents_have_the_other_tools(tmp_path):
    async def promise():
        asks = [call("delegate_task", tasks=[{"goal": "G"}]), "From below.", "From above."]
        async with built(tmp_path, asks, agent__toolsets=["todo", "delegation"]) as agent:
            assert set(agent.setup.tools) == {"todo", "delegate_task"}
            conversation = await agent.run("U")
            assert "From below." in conversation.graph[2]["content"]
            offered = agent.setup.model.requests[1].tools
            assert [tool["function"]["name"] for tool in offered] == ["todo"]

    asyncio.run(promise())


def test_the_tools_of_configured_mcp_servers_are_offered_while_the_block_lasts(tmp_path):
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    (tmp_path / ".stemma").mkdir()
    server = {"command": sys.executable, "args": [str(SAMPLE_SERVER)]}
    (tmp_path / ".stemma" / "config.yaml").write_text(json.dumps({"mcp": {"sample": server}}))
    trust_project(tmp_path, {"HOME": str(tmp_path)})

    async def promise():
        async with built(tmp_path) as agent:
            return list(agent.setup.tools)

    names = asyncio.run(promise())
    assert names
    assert any(name.startswith("mcp_sample_") for name in names)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{}", BadRecord),
        ('[{"content": "no role"}]', BadMessage),
        ('[{"role": "user", "content": "a", "content": "b"}]', BadRecord),
    ],
)
def test_a_prefill_that_is_no_list_of_messages_is_refused(tmp_path, text, error):
    async def promise():
        (tmp_path / "bad.json").write_text(text)
        async with built(tmp_path, agent__prefill=str(tmp_path / "bad.json")):
            pass

    with pytest.raises(error):
        asyncio.run(promise())


def test_the_sandbox_is_as_set(tmp_path):
    async def promise():
        async with built(tmp_path, sandbox__kind="none", sandbox__seconds=7.0, workspace=tmp_path) as agent:
            workspace = agent.workspace()
            assert isinstance(workspace.sandbox, Unfenced)
            assert (workspace.limits.seconds, workspace.root) == (7.0, tmp_path)

    asyncio.run(promise())


def test_an_image_without_an_engine_is_told_before_anything_runs(tmp_path, monkeypatch):
    async def promise():
        async with built(tmp_path, sandbox__image="debian") as agent:
            agent.start()

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSandbox, match="docker or podman"):
        asyncio.run(promise())
