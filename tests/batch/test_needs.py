"""A run looks at what it needs before it starts; what breaks later fails tasks and is never training data."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches import calls, lines_of, records_of
from stemma.agent.agent import Agent
from stemma.batch.batch import run_batch
from stemma.batch.needs import SPARE, Descriptors, fit
from stemma.errors import HarnessFailed
from stemma.models.retry import Retries
from stemma.models.scripted import ScriptedModel
from stemma.tools.mcp import McpServer, mcp_tools
from stemma.tools.sandbox import Bubblewrap, NoSandbox
from stemma.tools.terminal import TOOLS as TERMINAL
from stemma.tools.workspace import Workspace

SOON = Retries(attempts=3, first=0.001)
HARNESS_WORDS = ("Too many open files", "did not start", "is gone", "bwrap")


def commanding(request):
    """Runs a command, then says what it printed."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return {"content": f"It printed {last['content']}.", "reasoning": "r"}
    return calls("terminal", {"command": "echo fine"})


def run(rows, folder, agent, **more):
    batch = run_batch(rows, agent=agent, name="r", folder=folder, **more)
    return batch, list(batch)


@given(
    st.integers(1, 2000), st.integers(1, 16), st.integers(3, 500), st.integers(64, 1 << 20), st.integers(64, 1 << 20)
)
def test_descriptors_are_raised_no_further_than_needed_and_fewer_run_where_they_do_not_suffice(
    wanted, each, used, a, b
):
    now = Descriptors(used, min(a, b), max(a, b))
    found = fit(wanted, each, now)
    assert now.soft <= found.soft <= now.hard
    assert 1 <= found.at_once <= wanted
    needed = used + SPARE + wanted * each
    assert found.soft == max(now.soft, min(needed, now.hard))
    if needed <= now.hard:
        assert found.at_once == wanted
    elif found.at_once > 1:
        assert used + SPARE + found.at_once * each <= found.soft


# ── descriptors ──────────────────────────────────────────────────────────────────────────────────────────────────

UNDER_A_LIMIT = """
import json, resource, sys
sys.path.insert(0, sys.argv[3])
from batch.test_needs import SOON, commanding
from stemma.agent.agent import Agent
from stemma.batch.batch import run_batch
from stemma.models.scripted import ScriptedModel
from stemma.tools.terminal import TOOLS

soft, hard = map(int, sys.argv[2].split(","))
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
agent = Agent(model=ScriptedModel(commanding), tools=TOOLS, tool_retries=SOON)
batch = run_batch([f"row {i}" for i in range(40)], agent=agent, name="r", folder=sys.argv[1], concurrency=40)
notices = []
batch.notice = notices.append
most = max(batch.progress.limit for _ in batch)
print(json.dumps([batch.statistics["tasks"], most, notices, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("limits", "most"), [("128,4096", 40), ("128,128", 10)])
def test_with_few_descriptors_the_limit_is_raised_or_fewer_run_and_no_row_tells_of_it(tmp_path, limits, most):
    argv = [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path), limits, str(Path(__file__).parents[1])]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    tasks, limit, notices, soft = json.loads(done.stdout)
    assert tasks["completed"] == 40
    assert limit <= most
    assert bool(notices) == (limits == "128,128")
    assert soft == (128 if notices else soft) >= 128
    text = (tmp_path / "r" / "trajectories.jsonl").read_text()
    assert text.count("It printed fine.") == 40
    assert not any(word in text for word in HARNESS_WORDS)


EXHAUSTED = """
import asyncio, json, os, resource, sys
sys.path.insert(0, sys.argv[2])
from batch.test_needs import commanding
from stemma.agent.agent import Agent
from stemma.batch.batch import run_batch
from stemma.models.retry import Retries
from stemma.models.scripted import ScriptedModel
from stemma.tools.terminal import TOOLS

resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
taken = []

def release():
    while taken:
        os.close(taken.pop())

def hogging(request):
    if request.messages[-1]["role"] == "user" and not taken and sys.argv[3] != "over":
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            for _ in range(3):
                os.close(taken.pop())  # for the store, and not for a shell
        if sys.argv[3] == "passing":
            asyncio.get_running_loop().call_later(0.2, release)
    return commanding(request)

retries = Retries(attempts=4 if sys.argv[3] == "lasting" else 40, first=0.02, longest=0.1)
agent = Agent(model=ScriptedModel(hogging), tools=TOOLS, tool_retries=retries)
batch = run_batch(["one"], agent=agent, name="r", folder=sys.argv[1])
for result in batch:
    release()
print(json.dumps([batch.statistics["tasks"], batch.statistics["errors"], batch.statistics["exported"]]))
"""


@pytest.mark.parametrize("way", ["passing", "lasting"])
def test_descriptors_that_run_out_later_are_waited_for_then_fail_the_task_and_the_next_run_goes_on(tmp_path, way):
    def again(how):
        argv = [sys.executable, "-c", EXHAUSTED, str(tmp_path), str(Path(__file__).parents[1]), how]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    tasks, errors, exported = again(way)
    if way == "lasting":
        assert (tasks["failed"], errors, exported) == (1, {"OutOfResources": 1}, 0)
        (failure,) = lines_of(tmp_path / "r" / "failures.jsonl")
        assert failure["error"] == "OutOfResources"
        tasks, errors, exported = again("over")
    assert (tasks["completed"], errors, exported) == (1, {}, 1)
    text = (tmp_path / "r" / "trajectories.jsonl").read_text()
    assert "It printed fine." in text
    assert not any(word in text for word in HARNESS_WORDS)


# ── the sandbox ──────────────────────────────────────────────────────────────────────────────────────────────────


class Broken(Bubblewrap):
    """A bubblewrap that starts so many times and then no more, as where namespaces were forbidden."""

    def __init__(self, works=0):
        super().__init__()
        self.works = works

    def launch(self, argv, root, limits, mounts=()):
        self.works -= 1
        if self.works >= 0:
            return super().launch(argv, root, limits)
        return super().launch(
            ["sh", "-c", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"], root, limits
        )


def in_sandbox(sandbox, **more):
    model = ScriptedModel(commanding)
    agent = Agent(model=model, tools=TERMINAL, workspace=lambda: Workspace(sandbox=sandbox), tool_retries=SOON, **more)
    return agent, model


def test_a_run_that_offers_commands_does_not_start_with_a_sandbox_that_does_not(tmp_path):
    agent, model = in_sandbox(Broken())
    with pytest.raises(HarnessFailed, match="No permissions to create new namespace"):
        run(["one"] * 5, tmp_path, agent)
    assert model.requests == []


def test_a_run_that_offers_commands_does_not_start_without_bubblewrap(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    model = ScriptedModel(commanding)
    with pytest.raises(NoSandbox, match="apt install bubblewrap"):
        run(["one"] * 5, tmp_path, Agent(model=model, tools=TERMINAL))
    assert model.requests == []


def test_a_run_that_offers_none_needs_no_sandbox(tmp_path):
    agent, _ = in_sandbox(Broken())
    _, results = run(["one"], tmp_path, agent.changed(model=ScriptedModel(["done"]), tools=[]))
    assert results[0].answer == "done"


def test_a_sandbox_that_breaks_later_fails_every_task_that_needs_it_and_none_is_exported(tmp_path):
    agent, _ = in_sandbox(Broken(works=1))
    batch, results = run([f"row {i}" for i in range(5)], tmp_path, agent, concurrency=5)
    assert [result.record.status for result in results] == ["failed"] * 5
    assert batch.statistics["stop_reasons"] == {"harness error": 5}
    assert batch.statistics["errors"] == {"FenceBroken": 5}
    assert batch.statistics["exported"] == 0
    assert lines_of(tmp_path / "r" / "trajectories.jsonl") == []
    assert not any("bwrap" in str(result.graph.messages()) for result in results)
    mended, _ = in_sandbox(Bubblewrap())
    _, results = run([f"row {i}" for i in range(5)], tmp_path, mended, concurrency=5)
    assert [result.record.status for result in results] == ["completed"] * 5


# ── MCP servers ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("tool", "status"), [("die_once", "completed"), ("die", "failed")])
def test_a_server_that_dies_is_started_anew_or_fails_the_task_and_is_never_a_result(tmp_path, tool, status):
    pytest.importorskip("mcp", reason="needs the MCP SDK: pip install 'stemmata[mcp]'")
    rogue = Path(__file__).parents[1] / "tools" / "mcp_rogue.py"
    server = McpServer("rogue", sys.executable, [str(rogue), f"--mark={tmp_path / 'mark'}"])

    def script(request):
        last = request.messages[-1]
        if last["role"] == "tool":
            return {"content": f"It said {last['content']}.", "reasoning": "r"}
        return calls(f"mcp_rogue_{tool}", {})

    async def whole():
        async with mcp_tools([server]) as tools:
            agent = Agent(model=ScriptedModel(script), tools=tools, tool_retries=SOON)
            batch = run_batch(["a", "b", "c"], agent=agent, name="r", folder=tmp_path)
            return batch, [result async for result in batch]

    batch, _ = asyncio.run(whole())
    records = records_of(tmp_path, "r").values()
    assert {record.status for record in records} == {status}
    name = f"mcp_rogue_{tool}"
    if status == "completed":
        assert batch.statistics["tool_statistics"][name]["success"] == 3
        entries = lines_of(tmp_path / "r" / "trajectories.jsonl")
        assert [entry["tool_stats"][name]["count"] for entry in entries] == [1] * 3
    else:
        assert {record.failure.kind for record in records} == {"ServerGone"}
        assert batch.statistics["exported"] == 0
    assert not any(word in (tmp_path / "r" / "trajectories.jsonl").read_text() for word in HARNESS_WORDS)
