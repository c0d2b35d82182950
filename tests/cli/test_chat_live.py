"""`stemma chat` at a real terminal (a pty), against a real endpoint."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from cli.conftest import SOURCE
from cli.endpoint import Gate, endpoint, tool_call
from completions import completion
from stemma import MessageGraph, load_trajectories, open_store

pytestmark = pytest.mark.filterwarnings("ignore:.*forkpty:DeprecationWarning")  # the endpoint runs in a thread

PYTHONPATH = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])

Start = Callable[..., pexpect.spawn]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the command at a terminal of its own, with a store `stemma.db` and a conversation called `x`."""
    started: list[pexpect.spawn] = []
    (tmp_path / "notes.txt").write_text("the key is under the mat\n")
    ours = {"HOME": str(tmp_path), "PYTHONPATH": PYTHONPATH, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}

    def spawn(server, *arguments: str, greets: bool = True) -> pexpect.spawn:
        program = ["-c", "from stemma.cli.main import run; run()", "chat", "-m", "m", "--base-url", server.base_url]
        child = pexpect.spawn(
            sys.executable,
            [*program, *(arguments or ("--name", "x"))],
            cwd=str(tmp_path),
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **ours},
            dimensions=(40, 120),
            encoding="utf-8",
            timeout=30,
        )
        child.delaybeforesend = None
        started.append(child)
        if greets:
            child.expect("/help helps")
        return child

    yield spawn
    for child in started:
        child.close(force=True)


def stored(folder: Path, name: str = "x") -> MessageGraph:
    with open_store(folder / "stemma.db", create=False) as store:
        return store.load(name)


def said(graph: MessageGraph) -> list[str]:
    return [message["content"] for message in graph]


def leave(child: pexpect.spawn) -> None:
    child.expect("❯")
    child.send("\x04")
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 0


def test_a_reply_is_shown_while_it_comes(start, tmp_path):
    gate = Gate("The answer is", " 42.")
    with endpoint(gate) as server:
        child = start(server)
        child.send("What is it?\r")
        child.expect("The answer is")
        assert gate.begun.is_set()
        gate.open()
        child.expect(" 42.")
        leave(child)
    assert said(stored(tmp_path)) == ["What is it?", "The answer is 42."]


def test_thoughts_are_dim_and_tools_are_shown_with_result_and_time(start, tmp_path):
    asks = tool_call("read_file", '{"path": "notes.txt"}')
    asks["choices"][0]["message"]["reasoning_content"] = "I should look."
    with endpoint(asks, "Under the mat.") as server:
        child = start(server, "--toolsets", "file", "--workspace", ".")
        child.send("Where?\r")
        child.expect(r"\x1b\[2mI s")
        child.expect(r'→ read_file \{"path": "notes.txt"\}')
        child.expect(r"2 ✓ read_file \d\.\d\d s  1 the key is under the mat")
        child.expect("Under the mat.")
        leave(child)


def test_one_question_at_a_terminal_is_shown_as_it_is_answered_too(start):
    gate = Gate("Under", " the mat.")
    with endpoint(tool_call("read_file", '{"path": "notes.txt"}'), gate) as server:
        child = start(server, "-p", "Where?", "--toolsets", "file", "--workspace", ".", "--name", "x", greets=False)
        child.expect("✓ read_file")
        child.expect("Under")
        gate.open()
        child.expect(" the mat.\r\n")
        child.expect("kept as x")
        child.expect(pexpect.EOF)


def test_hostile_text_does_not_control_the_terminal(start, tmp_path):
    with endpoint("a\x1b[2Jb\x07c") as server:
        child = start(server)
        child.send("Hi\r")
        child.expect_exact("a\\x1b[2Jb\\x07c")
        leave(child)


def test_messages_of_many_lines(start, tmp_path):
    with endpoint("One.", "Two.", "Three.") as server:
        child = start(server)
        child.send("goes on\\\rand ends\r")
        child.expect("One")
        child.send('"""\rfirst\r\rlast\r"""\r')
        child.expect("Two")
        child.send("\x1b[200~pasted\nlines\x1b[201~\r")
        child.expect("Three")
        leave(child)
    assert said(stored(tmp_path))[::2] == ["goes on\nand ends", "first\n\nlast", "pasted\nlines"]


def test_what_was_typed_comes_back_in_the_next_chat(start, tmp_path):
    with endpoint("One.", "Two.") as server:
        child = start(server)
        child.send("Remember me\r")
        child.expect("One")
        leave(child)
        child = start(server, "--name", "y")
        child.expect("❯")
        child.send("\x1b[A\r")
        child.expect("Two")
        leave(child)
    assert said(stored(tmp_path, "y"))[0] == "Remember me"


def test_an_edit_keeps_the_line_a_reply_was_sampled_in_and_retry_goes_on_from_there(start, tmp_path):
    with endpoint("4", "5", "97") as server:
        child = start(server)
        child.send("Name a prime\r")
        child.expect("4")
        child.send("Another\r")
        child.expect("5")
        child.expect("❯")
        child.send("/edit 0\r")
        child.expect("edit 0 ❯")
        child.send(" above 90\r")
        child.expect("kept as version 0 because a reply stood after it")
        child.send("/retry\r")
        child.expect("97")
        leave(child)
    graph = stored(tmp_path)
    assert said(graph) == ["Name a prime above 90", "97"]
    assert [message["content"] for message in server.requests[2].body["messages"]] == ["Name a prime above 90"]
    assert said(graph.versions[0]) == ["Name a prime", "4", "Another", "5"]
    assert graph.versions[-1].reason == "resample"


def test_undo_takes_back_a_turn_and_keeps_what_was_sampled(start, tmp_path):
    with endpoint("One.", "Two.") as server:
        child = start(server)
        child.send("First\r")
        child.expect("One")
        child.send("Second\r")
        child.expect("Two")
        child.send("/undo\r")
        child.expect("took back 2 messages; kept as version 0")
        leave(child)
    graph = stored(tmp_path)
    assert said(graph) == ["First", "One."]
    assert (said(graph.versions[0]), graph.versions[0].reason) == (["First", "One.", "Second", "Two."], "undo")


def test_a_branch_goes_on_by_itself_and_both_stay(start, tmp_path):
    with endpoint("One.", "Two.") as server:
        child = start(server, "--name", "x", "--save-trajectories")
        child.send("First\r")
        child.expect("One")
        child.send("/branch y\r")
        child.expect("this is y now; x stays as it is")
        child.send("Second\r")
        child.expect("Two")
        child.send("/branch x\r")
        child.expect("'x' is a conversation already")
        leave(child)
    assert said(stored(tmp_path, "x")) == ["First", "One."]
    assert said(stored(tmp_path, "y")) == ["First", "One.", "Second", "Two."]
    assert len(list(load_trajectories(tmp_path / "trajectory_samples.jsonl"))) == 2


def test_a_later_turn_takes_the_place_of_the_earlier_one_in_the_trajectories(start, tmp_path):
    with endpoint("One.", "Two.") as server:
        child = start(server, "--name", "x", "--save-trajectories")
        child.send("First\r")
        child.expect("One")
        child.send("Second\r")
        child.expect("Two")
        leave(child)
    (row,) = load_trajectories(tmp_path / "trajectory_samples.jsonl")
    assert [turn["value"] for turn in row["conversations"] if turn["from"] == "human"] == ["First", "Second"]


def test_the_other_commands(start, tmp_path):
    with endpoint("One.") as server:
        child = start(server, "--name", "x", "--toolsets", "file")
        child.send("First\r")
        child.expect("One")
        for typed, shown in {
            "/help": r"/edit N \[TEXT\] +change message N",
            "/tools": "search_files +Search text files",
            "/usage": "total_tokens 12, cost not known",
            "/graph": "● .* assistant .*One.*tip",
            "/model other": "other answers",
            "/save": "saved as x",
            "/save out.json": "wrote out.json",
            "/save out.jsonl": "wrote out.jsonl",
            "/nonsense": "there is no /nonsense; /help lists",
            "/edit 9": "N is the number of a message, from 0 to 1",
        }.items():
            child.send(f"{typed}\r")
            child.expect(shown)
        child.send("/quit\r")
        child.expect("--resume x")
        child.expect(pexpect.EOF)
    assert [message["role"] for message in json.loads((tmp_path / "out.json").read_text())] == ["user", "assistant"]
    assert len(list(load_trajectories(tmp_path / "out.jsonl"))) == 1


def test_ctrl_c_stops_the_turn_and_a_second_leaves(start, tmp_path):
    gate = Gate("Endless", "")
    with endpoint(gate) as server:
        child = start(server)
        child.send("Hi\r")
        child.expect("Endless")
        child.send("\x03")
        child.expect("stopped; write on")
        child.expect("❯")
        with open_store(tmp_path / "stemma.db", create=False) as store:
            assert store.metadata("x")["stopped"] == "interrupted"
        child.send("\x03")
        child.expect(pexpect.EOF)
        gate.open()
    assert said(stored(tmp_path)) == ["Hi"]


def test_a_stopped_tool_call_is_not_run_again_unasked(start, tmp_path):
    with endpoint(tool_call("terminal", '{"command": "sleep 100"}'), "I see.") as server:
        child = start(server, "--name", "x", "--toolsets", "terminal", "--sandbox", "none")
        child.send("Wait\r")
        child.expect("→ terminal")
        child.send("\x03")
        child.expect("stopped; write on")
        child.send("Never mind\r")
        child.expect("I see.")
        leave(child)
    graph = stored(tmp_path)
    assert [message["role"] for message in graph] == ["user", "assistant", "tool", "user", "assistant"]
    assert "the user stopped this call" in graph[2]["content"]


def test_a_chat_that_was_killed_goes_on_where_it_stopped(start, tmp_path):
    gate = Gate("Half an ans", "wer")
    with endpoint("One.", gate, "A whole answer.") as server:
        child = start(server)
        child.send("First\r")
        child.expect("One")
        child.send("Second\r")
        child.expect("Half an ans")
        child.kill(signal.SIGKILL)
        child.expect(pexpect.EOF)
        assert said(stored(tmp_path)) == ["First", "One.", "Second"]
        gate.open()
        child = start(server, "--resume", "x", greets=False)
        child.expect("1 assistant: One.")
        child.expect("going on where it stopped")
        child.expect("A whole answer.")
        leave(child)
    assert said(stored(tmp_path)) == ["First", "One.", "Second", "A whole answer."]


def test_a_failure_is_told_and_the_chat_goes_on(start, tmp_path):
    async def refuse(exchange):
        await exchange.json({"error": {"message": "no such model"}}, status=404)

    with endpoint(refuse, completion("Here I am.")) as server:
        child = start(server)
        child.send("Hi\r")
        child.expect("no answer: model error: .*no such model")
        child.send("/retry\r")
        child.expect("Here I am.")
        leave(child)
    assert said(stored(tmp_path)) == ["Hi", "Here I am."]
