"""Tools of MCP servers work like any other, and a server that fails breaks nothing but its own calls."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.agent.agent import Agent
from stemma.errors import MissingExtra
from stemma.models.retry import Retries
from stemma.models.scripted import ScriptedModel
from stemma.tools import mcp
from stemma.tools.mcp import MOST_RESTARTS, McpFailed, McpServer, ServerGone, mcp_tools, tool_names
from stemma.tools.running import run_tool

pytest.importorskip("mcp", reason="needs the MCP SDK: pip install 'stemmata[mcp]'")

HERE = Path(__file__).parent
SAMPLE = McpServer("sample", sys.executable, [str(HERE / "mcp_sample.py")], {"TOKEN": "configured"})
OURS = f"--of={os.getpid()}"
"""Tells the servers of these tests from those of another worker."""
ROGUE = McpServer("rogue", sys.executable, [str(HERE / "mcp_rogue.py"), OURS])


def use(*calls, server=ROGUE):
    """What came of each call, one after the other."""

    async def run():
        async with mcp_tools([server]) as tools:
            known = {tool.name: tool for tool in tools}
            return [await run_tool(known, f"mcp_{server.name}_{name}", given) for name, given in calls]

    return asyncio.run(run())


def test_an_agent_uses_tools_with_the_servers_schema_and_none_of_our_environment(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "CANARY")
    names = ["add", "read_note", "picture", "broken", "add", "environment", "much"]
    asked = [{"a": 2}, {"title": "é 💡"}, {}, {}, {"a": "two"}, {}, {"characters": 1_000_000}]
    functions = [
        {"name": f"mcp_sample_{name}", "arguments": json.dumps(arguments)}
        for name, arguments in zip(names, asked, strict=True)
    ]
    calls = [{"id": str(i), "type": "function", "function": function} for i, function in enumerate(functions)]

    async def run():
        async with mcp_tools([SAMPLE]) as tools:
            model = ScriptedModel([{"content": None, "tool_calls": calls}, "done"])
            return tools, await Agent(model=model, tools=tools).run("go")

    tools, conversation = asyncio.run(run())
    add = next(tool for tool in tools if tool.name == "mcp_sample_add")
    assert (add.description, add.toolset) == ("Add two numbers.", "mcp-sample")
    assert add.parameters["required"] == ["a"]
    assert add.parameters["properties"]["b"]["default"] == 1
    added, note, picture, broken, wrong, environment, much = [m["content"] for m in conversation.graph[2:-1]]
    assert (added, note, picture) == ("3", "note 'é 💡'", "here it is\n[image]")
    assert "out of order" in broken
    assert wrong.startswith("Error")
    assert set(environment.split()) - {"LC_CTYPE"} == {"PATH", "TOKEN"}  # the first is set by Python itself
    assert "[970000 characters left out]" in much
    assert conversation.completed


def test_a_server_over_http_works_the_same():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = subprocess.Popen([*SAMPLE_ARGV, "--http", str(port)], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        server = McpServer("sample", url=f"http://127.0.0.1:{port}/mcp")
        added, broken, wrong = use(
            ("add", {"a": 2}), ("broken", {}), ("read_note", '{"title": "\\ud800"}'), server=server
        )
    finally:
        running.kill()
        running.wait()
    assert added.text == "3"
    assert not broken.ok
    assert "cannot be sent" in wrong.text


SAMPLE_ARGV = [SAMPLE.command, *SAMPLE.args]


def _wait_for(port):
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return


def test_results_of_every_kind_become_text():
    structured, resource, complained, renamed, echo = use(
        ("structured", ""), ("resource", ""), ("complain", ""), ("rename", ""), ("echo", '{"any": ["thing"]}')
    )
    assert structured.text == '{"primes": [2, 3]}'
    assert resource.text == "inside\n[memo://2]\n[audio]"
    assert complained.text == "complained"
    assert (renamed.ok, echo.text) == (True, "echo")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("echo", '{"title": NaN}', "cannot be sent"),
        ("echo", '{"title": "\\ud800"}', "cannot be sent"),
        ("echo", '{"a": 1, "a": 2}', "twice"),
        ("echo", "[1]", "must be a JSON object"),
        ("refuse", "{}", "I would rather not"),
        ("nonsense", "{}", "rogue"),
    ],
)
def test_a_call_that_fails_is_told_and_the_server_goes_on(name, arguments, said):
    refused, after = use((name, arguments), ("echo", {}))
    assert not refused.ok
    assert said in refused.text
    assert after.text == "echo"


def gone(*calls, server=ROGUE):
    """What came of each call; the failure itself where the server was gone."""

    async def run():
        async with mcp_tools([server]) as tools:
            known = {tool.name: tool for tool in tools}
            return [await outcome(known, f"mcp_{server.name}_{name}") for name in calls]

    return asyncio.run(run())


async def outcome(known, name):
    try:
        return await run_tool(known, name, {})
    except ServerGone as problem:
        return problem


def test_a_call_that_takes_too_long_is_told_while_the_server_still_answers():
    late, after = gone("ignore", "echo", server=McpServer("rogue", ROGUE.command, ROGUE.args, seconds=2))
    assert not late.ok
    assert "did not answer in 2 seconds" in late.text
    assert after.text == "echo"


def test_a_server_that_answers_nothing_any_more_is_replaced_and_no_result_for_the_model():
    late, after = gone("slow", "echo", server=McpServer("rogue", ROGUE.command, ROGUE.args, seconds=2))
    assert isinstance(late, ServerGone)
    assert "no answer in 2 seconds" in str(late)
    assert after.text == "echo"
    assert OURS not in processes()


def test_a_server_that_dies_is_started_anew_and_its_last_words_are_told_to_the_user_not_to_the_model():
    died, after, again, last = gone("die", "echo", "die", "echo")
    assert isinstance(died, ServerGone)
    assert died.retryable
    assert "the server has died" in str(died)
    assert (after.text, last.text) == ("echo", "echo")
    assert isinstance(again, ServerGone)


def test_calls_under_way_when_a_server_dies_all_fail_and_one_new_server_answers_them_again():
    async def run():
        async with mcp_tools([ROGUE]) as tools:
            known = {tool.name: tool for tool in tools}
            dying = [outcome(known, f"mcp_rogue_{name}") for name in ("die", *["echo"] * 10)]
            first = await asyncio.gather(*dying)
            second = await asyncio.gather(*(outcome(known, "mcp_rogue_echo") for _ in range(10)))
            return first, second, processes().count(OURS)

    first, second, running = asyncio.run(run())
    assert isinstance(first[0], ServerGone)
    assert [result.text for result in second] == ["echo"] * 10
    assert running == 1


def test_a_server_that_never_answers_is_started_only_so_often(monkeypatch):
    monkeypatch.setattr(mcp, "_FIRST_WAIT", 0.001)
    found = gone(*["die"] * (MOST_RESTARTS + 2), "echo")
    assert all(isinstance(one, ServerGone) for one in found)
    assert "5 times in vain" in str(found[-1])


def test_a_conversation_whose_server_dies_goes_on_with_the_new_one(tmp_path):
    fatal = {"id": "c", "type": "function", "function": {"name": "mcp_rogue_die_once", "arguments": "{}"}}
    server = McpServer("rogue", ROGUE.command, [*ROGUE.args, f"--mark={tmp_path / 'mark'}"])

    async def run():
        async with mcp_tools([server]) as tools:
            model = ScriptedModel([{"content": None, "tool_calls": [fatal]}, "done"])
            return await Agent(model=model, tools=tools, tool_retries=Retries(first=0.01)).run("go")

    conversation = asyncio.run(run())
    assert conversation.completed
    assert conversation.graph[2]["content"] == "survived"


@pytest.mark.slow
def test_a_server_over_http_that_comes_back_is_reached_again():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def run():
        running = _serve(port)
        try:
            async with mcp_tools([McpServer("sample", url=f"http://127.0.0.1:{port}/mcp", seconds=20)]) as tools:
                known = {tool.name: tool for tool in tools}
                running.kill()
                running.wait()
                down = await outcome(known, "mcp_sample_environment")
                running = _serve(port)
                return down, await outcome(known, "mcp_sample_environment")
        finally:
            running.kill()
            running.wait()

    down, up = asyncio.run(run())
    assert isinstance(down, ServerGone)
    assert up.ok


def _serve(port):
    running = subprocess.Popen(
        [*SAMPLE_ARGV, "--http", str(port)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _wait_for(port)
    return running


@pytest.mark.parametrize("way", ["flood", "chatter"])
def test_a_server_that_floods_is_cut_off_and_replaced(way):
    flooded, after = gone(way, "echo")
    assert isinstance(flooded, ServerGone)
    assert after.text == "echo"
    assert OURS not in processes()


STUBBORN = """
import asyncio, sys
from stemma.tools.mcp import McpServer, mcp_tools

async def run(server):
    async with mcp_tools([server]):
        print("runs", flush=True)
        await asyncio.sleep(float(sys.argv[1]))

asyncio.run(run(McpServer("rogue", sys.executable, sys.argv[2:])))
"""


@pytest.mark.parametrize("way", [None, "KILL", "TERM"])
def test_a_server_that_ignores_the_end_of_its_input_is_ended_however_we_end(way):
    argv = [sys.executable, "-c", STUBBORN, "0" if way is None else "60", *ROGUE.args, "--stubborn"]
    ours = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert ours.stdout.readline() == b"runs\n"
    assert sum(OURS in line for line in processes().splitlines()) == 2  # the program, and its server
    if way is not None:
        subprocess.run(["kill", f"-{way}", str(ours.pid)], check=True)
    ours.wait()
    ours.stdout.close()
    for _ in range(100):
        if OURS not in processes():
            return
        time.sleep(0.05)
    raise AssertionError("the server outlived us")


def test_no_server_and_nothing_in_its_group_is_left_behind():
    (started,) = use(("child", {}))
    assert f"{started.text} sleep 98763" not in processes()
    assert OURS not in processes()


def test_a_process_that_ran_away_with_our_pipes_does_not_hold_us():
    begun = time.monotonic()
    (started,) = use(("runaway", {}))
    assert time.monotonic() - begun < 7
    subprocess.run(["kill", started.text], check=True)


def processes():
    return subprocess.run(["ps", "axww", "-o", "pid,args"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (McpServer("x", "no-such-program-here"), "no-such-program-here"),
        (McpServer("x", sys.executable, ["-c", "import sys; sys.exit('bad configuration')"]), "bad configuration"),
        (McpServer("x", "sleep", ["60"], seconds=0.5), "no answer in 0.5 seconds"),
        (McpServer("x", url="http://127.0.0.1:9/mcp", seconds=5), "'x' did not start"),
        (McpServer("x"), "needs either a command or a url"),
    ],
)
def test_a_server_that_does_not_start_is_named_with_its_reason(server, said):
    with pytest.raises(McpFailed, match=said):
        use(server=server)


def test_two_servers_of_one_name_are_refused():
    async def run():
        async with mcp_tools([ROGUE, ROGUE]):
            pass

    with pytest.raises(McpFailed, match="2 MCP servers are named 'rogue'"):
        asyncio.run(run())


def test_a_failure_in_the_block_ends_the_servers_and_is_told_as_it_is():
    async def run():
        async with mcp_tools([ROGUE]):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(run())
    assert OURS not in processes()


def test_one_of_several_servers_can_fail_and_calls_side_by_side_reach_the_others():
    async def run():
        async with mcp_tools([McpServer(name, ROGUE.command, ROGUE.args) for name in ("one", "two")]) as tools:
            known = {tool.name: tool for tool in tools}
            dead = await outcome(known, "mcp_one_die")
            return dead, await asyncio.gather(*(run_tool(known, "mcp_two_echo", {"a": i}) for i in range(40)))

    dead, answered = asyncio.run(run())
    assert isinstance(dead, ServerGone)
    assert [result.text for result in answered] == ["echo"] * 40


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=80)), unique=True, max_size=8))
def test_names_are_valid_distinct_and_do_not_depend_on_their_order(tools):
    names = dict(zip(tools, tool_names(tools), strict=True))
    assert len(set(names.values())) == len(tools)
    assert all(len(name) <= 64 and name.isascii() for name in names.values())
    assert dict(zip(tools[::-1], tool_names(tools[::-1]), strict=True)) == names


def test_without_the_sdk_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"stemmata\[mcp\]"):
        use()
