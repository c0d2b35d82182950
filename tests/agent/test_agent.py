"""The agent from Python: functions as tools, conversations that can go on, trajectories saved once."""

import asyncio
import errno
import json

import pytest

from stemma import MessageGraph, load_trajectories
from stemma.agent.agent import Agent
from stemma.agent.limits import Limits
from stemma.agent.subagent import delegation
from stemma.formats.files import COMPLETED_FILE, FAILED_FILE
from stemma.models.errors import EndpointFailed
from stemma.models.retry import Retries
from stemma.models.scripted import ScriptedModel
from stemma.tools.files import TOOLS as FILE_TOOLS
from stemma.tools.tool import as_tool


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call(name, arguments, call_id="c"):
    return {
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def test_a_function_is_a_tool_and_the_answer_comes_back():
    model = ScriptedModel([call("add", '{"a": 2, "b": 3}'), "5"])
    conversation = Agent(model=model, tools=[add], system="S").run_sync("2 + 3?")
    assert (conversation.answer, conversation.completed, conversation.stop_reason) == ("5", True, "answer")
    assert [m["role"] for m in conversation.graph] == ["system", "user", "assistant", "tool", "assistant"]
    assert model.requests[0].tools[0]["function"]["name"] == "add"


def test_one_agent_runs_many_conversations_at_once_each_with_a_folder_of_its_own():
    async def script(request):
        await asyncio.sleep(0)
        said = request.messages[-1]
        if said["role"] == "user":
            return call("write_file", json.dumps({"path": "x", "content": said["content"]}))
        return call("read_file", '{"path": "x"}', "d") if "wrote" in said["content"] else said["content"]

    agent = Agent(model=ScriptedModel(script), tools=FILE_TOOLS)

    async def run():
        return await asyncio.gather(*(agent.run(str(i)) for i in range(40)))

    answers = [conversation.answer for conversation in asyncio.run(run())]
    assert answers == [f"1\t{i}" for i in range(40)]


def test_a_conversation_goes_on_and_is_saved_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = Agent(model=ScriptedModel(["one", "two", EndpointFailed("down")]), save_trajectories=True)

    async def run():
        async with agent.start() as conversation:
            await conversation.say("first")
            await conversation.say("second")
            assert [len(e["conversations"]) for e in load_trajectories(COMPLETED_FILE)] == [5]
            await conversation.say("third")
        return conversation

    conversation = asyncio.run(run())
    assert (conversation.answer, conversation.stop_reason) == (None, "model error")
    assert list(load_trajectories(COMPLETED_FILE)) == []
    (saved,) = load_trajectories(FAILED_FILE)
    assert not saved["completed"]
    assert len(saved["conversations"]) == 6


def test_nothing_is_saved_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Agent(model=ScriptedModel(["hi"])).run_sync("x")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_conversation_says_so_and_can_go_on():
    async def never(request):
        await asyncio.sleep(60)

    agent = Agent(model=ScriptedModel(never))

    async def run():
        async with agent.start() as conversation:
            task = asyncio.ensure_future(conversation.say("x"))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return conversation

    conversation = asyncio.run(run())
    assert conversation.stop_reason == "interrupted"
    resumed = Agent(model=ScriptedModel(["done"])).run_sync((), conversation.graph)
    assert resumed.answer == "done"
    assert len(resumed.graph) == 2


def test_a_subagent_works_with_tools_of_its_own_and_its_conversation_hangs_on_the_result():
    def script(request):
        said = request.messages[-1]
        if said["role"] == "user" and said["content"] == "go":
            return call("delegate_task", '{"tasks": [{"goal": "2 + 3"}, {"goal": "4 + 5", "context": "integers"}]}')
        if said["role"] == "user":
            a, b = said["content"].split("\n")[0].split(" + ")
            return call("add", f'{{"a": {a}, "b": {b}}}', "s")
        return said["content"]

    agent = Agent(model=ScriptedModel(script), limits=Limits(turns=6))  # its own two, and two of each subagent
    agent.offer(delegation(agent, [as_tool(add)]))
    conversation = agent.run_sync("go")
    assert conversation.answer == "[1] 5\n\n[2] 9"
    children = conversation.graph.nested(2)
    assert [child[-1]["content"] for child in children] == ["5", "9"]
    assert sum(len(row.trained) for row in conversation.graph.rows()) == 2 + 2 + 2
    assert len(conversation.graph.lines()) == 3


@pytest.mark.parametrize(
    ("problem", "said"),
    [(EndpointFailed("down"), "model error: EndpointFailed: down"), (None, "harness error: OutOfResources: Too many")],
)
def test_a_subagent_that_the_endpoint_or_the_harness_failed_is_no_answer_for_the_one_who_asked(problem, said):
    def fragile() -> str:
        """Work."""
        raise OSError(errno.EMFILE, "Too many open files")

    def script(request):
        last = request.messages[-1]
        if last["content"] == "go":
            return call("delegate_task", '{"tasks": [{"goal": "fail"}]}')
        return problem or call("fragile", "{}")

    agent = Agent(model=ScriptedModel(script), tool_retries=Retries(attempts=1))
    agent.offer(delegation(agent, [as_tool(fragile)]))
    conversation = agent.run_sync("go")
    assert conversation.stop_reason == "harness error"
    assert said in conversation.stopped.detail
    assert [m["role"] for m in conversation.graph] == ["user", "assistant"]


def test_a_subagent_that_met_a_limit_is_told_to_the_one_who_asked():
    def script(request):
        said = request.messages[-1]
        if said["content"] == "go":
            return call("delegate_task", '{"tasks": [{"goal": "fail"}]}')
        return "" if said["content"] == "fail" else said["content"]

    agent = Agent(model=ScriptedModel(script))
    agent.offer(delegation(agent, []))
    conversation = agent.run_sync("go")
    assert "no answer: empty" in conversation.answer


def test_usage_and_cost_are_summed_and_unknown_cost_stays_unknown():
    conversation = Agent(model=ScriptedModel(["hi"])).run_sync("x", MessageGraph())
    assert (conversation.usage, conversation.cost) == ({}, None)
