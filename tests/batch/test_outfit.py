import pytest

from batches import add, adder
from stemma.agent.agent import Agent
from stemma.agent.limits import Limits
from stemma.batch.batch import offer_of
from stemma.batch.distributions import Distribution
from stemma.batch.outfit import Outfitter, own_toolsets
from stemma.batch.plan import Task
from stemma.batch.prompts import as_row
from stemma.batch.record import Record
from stemma.errors import NotFound
from stemma.models.scripted import ScriptedModel

AGENT = Agent(model=ScriptedModel(adder), tools=[add], system="Usual.", params={"temperature": 0.1, "top_p": 1})


def outfitter(distribution=None):
    return Outfitter(AGENT, offer_of(AGENT), distribution, seed=1)


def task(**row):
    return Task(as_row({"prompt": "p", **row}, 0), 0, 0)


def names(tools):
    return [tool.name for tool in tools]


def test_a_row_that_says_nothing_gets_the_agents_own_tools():
    assert names(outfitter().tools(task())) == ["add"]
    assert outfitter().toolsets(task()) is None


def test_what_a_row_names_goes_before_what_is_drawn():
    drawing = outfitter(Distribution("d", {"todo": 100}))
    assert names(drawing.tools(task())) == ["todo"]
    assert names(drawing.tools(task(tools=["add"]))) == ["add"]
    assert drawing.tools(task(tools=[])) == []


def test_tasks_with_the_same_tools_share_them():
    drawing = outfitter(Distribution("d", {"file": 100}))
    assert drawing.tools(task()) is drawing.tools(task(level=2))


def test_a_tool_that_there_is_not_is_refused():
    with pytest.raises(NotFound, match="no_such"):
        outfitter().tools(task(tools=["no_such"]))


def test_the_agent_for_a_task_is_the_runs_agent_changed_as_the_row_says(tmp_path):
    row = task(system="Mine.", limits={"turns": 2}, tools=["todo"])
    agent = outfitter().agent_for(row, Record(key="k", params={"seed": 5, "top_p": 0.5}), tmp_path)
    assert (agent.system, agent.setup.limits, [*agent.setup.tools]) == ("Mine.", Limits(turns=2), ["todo"])
    assert agent.setup.params == {"temperature": 0.1, "top_p": 0.5, "seed": 5}
    assert agent.workspace().root == tmp_path
    usual = outfitter().agent_for(task(), Record(key="k"), tmp_path)
    assert (usual.system, usual.setup.limits) == ("Usual.", AGENT.setup.limits)
    assert AGENT.system == "Usual."


def test_toolsets_of_tools_are_named_once():
    assert own_toolsets(outfitter().tools(task(tools=["file", "todo"]))) == ["file", "todo"]
