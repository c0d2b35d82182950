"""Our credentials reach neither a model nor the store, and a fence that is open is written down."""

import asyncio
import base64
import json

import pytest

from stemma import open_store
from stemma.agent.agent import Agent
from stemma.models.scripted import ScriptedModel
from stemma.redact import MASK
from stemma.tools.container import Container, Engine
from stemma.tools.sandbox import Bubblewrap, Unfenced
from stemma.tools.terminal import TOOLS
from stemma.tools.workspace import Workspace

KEY = "sk-CANARY-0123456789"
FORMS = {
    "as it is": KEY,
    "in JSON": json.dumps({"key": KEY}),
    "in base64": base64.b64encode(f"Authorization: Bearer {KEY}".encode()).decode(),
    "in hex": KEY.encode().hex(),
    "in a URL": f"https://example.org/?key={KEY}&x=1",
}


def leaking(text):
    def leak() -> str:
        """Leak."""
        return text

    async def fail() -> str:
        """Fail."""
        raise RuntimeError(f"cannot log in with {text}")

    return [leak, fail]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_credential_reaches_the_model_or_the_store(tmp_path, form):
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("leak", "fail")
    ]
    model = ScriptedModel([{"content": None, "tool_calls": calls}, "done"])
    agent = Agent(model=model, tools=leaking(form), workspace=lambda: Workspace(secrets=[KEY, ""]))
    conversation = agent.run_sync("go")
    sent = json.dumps([request.messages for request in model.requests])
    assert sent.count(MASK) == 2
    with open_store(tmp_path / "s.db") as store:
        store.save(conversation.graph, name="x")
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for trace in (KEY, KEY.encode().hex(), base64.b64encode(KEY[3:15].encode()).decode()):
        assert trace not in sent
        assert trace.encode() not in kept


def test_a_reply_with_a_credential_is_recorded_without_it_and_not_trained():
    """However the model came by it: by a tool that hid it from us, or because the user typed it."""
    shown = []
    agent = Agent(model=ScriptedModel([f"It is {KEY}."]), workspace=lambda: Workspace(secrets=[KEY]))

    async def talk():
        async with agent.start() as conversation:
            await conversation.say("Which key?", shown.append)
        return conversation.graph

    graph = asyncio.run(talk())
    assert graph[-1]["content"] == f"It is {MASK}."
    assert "".join(delta.text for delta in shown) == f"It is {MASK}."
    extra = graph.last_call().call.extra
    assert (extra["redacted"], extra["trainable"]) == (True, False)


@pytest.mark.parametrize(
    ("sandbox", "noted"),
    [
        (None, {}),
        (Bubblewrap(), {}),
        (Bubblewrap(network=True), {"network": True}),
        (Unfenced(), {"sandbox": "none", "network": True}),
        (Container("debian:12", engine=Engine("docker")), {"sandbox": "docker:debian:12"}),
    ],
)
def test_a_fence_that_is_not_the_usual_one_is_written_down_with_the_conversation(tmp_path, sandbox, noted):
    agent = Agent(model=ScriptedModel(["hi"]), workspace=lambda: Workspace(sandbox=sandbox))
    with open_store(tmp_path / "s.db") as store:
        store.save(agent.run_sync("go").graph, name="x")
        (sampled,) = store.load("x").calls()
    assert sampled.call.extra == noted


def test_without_a_fence_commands_run_in_the_folder_with_none_of_our_environment(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "CANARY")

    async def run():
        workspace = await Workspace(sandbox=Unfenced()).open()
        try:
            return workspace.root, await TOOLS[0].run("pwd; echo $HOME; env", workspace)
        finally:
            await workspace.close()

    root, result = asyncio.run(run())
    assert result.text.startswith(f"{root}\n{root}\n")
    assert "CANARY" not in result.text
    assert not root.exists()


def test_a_folder_is_removed_however_deep_a_command_has_made_it():
    deep = "python3 -c \"import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\""

    async def run():
        workspace = await Workspace(sandbox=Unfenced()).open()
        try:
            return workspace.root, await TOOLS[0].run(deep, workspace)
        finally:
            await workspace.close()

    root, result = asyncio.run(run())
    assert result.ok
    assert not root.exists()
