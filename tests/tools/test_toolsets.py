"""Tools are chosen by name, in a stable order; what is not there or not set is told with what to do."""

import pytest

from stemma.tools.tool import Tool, as_tool
from stemma.tools.toolsets import TOOL_TO_TOOLSET_MAP, TOOLSETS, NoSuchTool, ToolTaken, choose_tools
from stemma.tools.web_access import WebAccess, WebNotSet

WEB = WebAccess(search_url="http://127.0.0.1:1")


def forecast(place: str) -> str:
    """Say how the weather will be."""
    return f"rain in {place}"


def named(name: str, toolset: str = "custom") -> Tool:
    return Tool(name=name, description="…", parameters={}, run=forecast, toolset=toolset)


def names(*wanted, **options):
    return [tool.name for tool in choose_tools(wanted, **options).tools]


def test_the_map_has_every_shipped_tool_with_its_toolset():
    chosen = choose_tools(["all"], web=WEB)
    assert {tool.name: tool.toolset for tool in chosen.tools} | {"delegate_task": "delegation"} == TOOL_TO_TOOLSET_MAP
    assert chosen.delegates


def test_the_delegation_tool_has_the_name_that_the_map_has():
    from stemma.agent.agent import Agent
    from stemma.agent.subagent import delegation
    from stemma.models.scripted import ScriptedModel

    tool = delegation(Agent(model=ScriptedModel([])), [])
    assert TOOL_TO_TOOLSET_MAP[tool.name] == tool.toolset


def test_the_order_is_that_of_the_map_however_one_asks():
    order = [name for name in TOOL_TO_TOOLSET_MAP if name != "delegate_task"]
    assert names(*reversed(TOOLSETS), web=WEB) == order
    assert names("todo", "terminal", "read_file", "todo") == ["terminal", "process", "read_file", "todo"]
    assert names() == []


def test_safe_tools_run_no_commands_and_reach_no_network():
    assert {TOOL_TO_TOOLSET_MAP[name] for name in names("safe")} == {"file", "todo"}


@pytest.mark.parametrize(("asked", "delegates"), [("delegation", True), ("delegate_task", True), ("file", False)])
def test_delegation_is_told_to_the_caller_who_has_the_model(asked, delegates):
    chosen = choose_tools([asked])
    assert chosen.delegates is delegates
    assert "delegate_task" not in [tool.name for tool in chosen.tools]


def test_the_users_tools_are_chosen_by_name_or_toolset_and_come_last():
    extra = [as_tool(forecast), named("look", "mcp-eyes"), named("see", "mcp-eyes")]
    assert names("custom", "todo", extra=extra) == ["todo", "forecast"]
    assert names("mcp-eyes", extra=extra) == ["look", "see"]
    assert names("see", "forecast", extra=extra) == ["forecast", "see"]
    assert names("todo", extra=extra) == ["todo"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("termnal", "did you mean 'terminal'"),
        ("forcast", "did you mean 'forecast'"),
        ("xyzzy", "There are: terminal, file, web, todo, delegation, all, safe, process, read_file"),
        ("", "no tool or toolset ''"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one_and_the_list(asked, said):
    with pytest.raises(NoSuchTool, match=said):
        choose_tools(["file", asked], extra=[as_tool(forecast)])


@pytest.mark.parametrize("extra", [[named("terminal")], [named("x"), named("x")]])
def test_two_tools_of_one_name_are_refused(extra):
    with pytest.raises(ToolTaken, match=extra[0].name):
        choose_tools(["todo"], extra=extra)


@pytest.mark.parametrize(
    ("asked", "web", "said"),
    [
        ("web", None, "web_search needs .* set web.search_url .* web.api_key_env"),
        ("web_extract", None, "web_extract needs"),
        ("all", None, "set web.search_url"),
        ("web", WebAccess(provider="brave"), "brave needs a key"),
    ],
)
def test_web_tools_without_access_say_what_to_set(asked, web, said):
    with pytest.raises(WebNotSet, match=said):
        choose_tools([asked], web=web)
