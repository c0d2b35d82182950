"""`stemma chat -p`, the real command against a real endpoint: answers, exit codes, nothing lost whatever happens."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import SOURCE, Outcome, Run, trust_project
from cli.endpoint import Gate, endpoint, tool_call
from completions import completion
from stemma import Call, MessageGraph, load_trajectories, open_store

PYTHONPATH = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
READ = tool_call("read_file", '{"path": "notes.txt"}')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("the key is under the mat\n")
    return tmp_path


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    """An environment without anybody's settings."""
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}


@pytest.fixture
def chat(run: Run, here: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `stemma chat` in this process."""

    def in_process(*arguments: str, **environment: str) -> Outcome:
        for name, value in (here | environment).items():
            monkeypatch.setenv(name, value)
        return run("chat", *arguments)

    return in_process


def at(server, *more: str) -> list[str]:
    return ["-m", "m", "--base-url", server.base_url, *more]


def with_files(folder: Path) -> list[str]:
    return ["--toolsets", "file", "--workspace", str(folder)]


def start(folder: Path, here: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-c", "from stemma.cli.main import run; run()", "chat", *arguments]
    environment = os.environ | {"PYTHONPATH": PYTHONPATH} | here
    pipe = subprocess.PIPE
    return subprocess.Popen(program, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)


def stored(folder: Path, name: str) -> tuple[MessageGraph, dict[str, object]]:
    with open_store(folder / "stemma.db", create=False) as store:
        return store.load(name), store.metadata(name)


def roles(graph: MessageGraph) -> list[str]:
    return [message["role"] for message in graph]


# ── one question ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_and_nothing_else_goes_to_standard_output(folder, chat):
    with endpoint(READ, "Under the mat.") as server:
        done = chat("-p", "Where is the key?", *at(server), *with_files(folder))
    assert (done.code, done.out, done.err) == (0, "Under the mat.\n", "")
    assert "under the mat" in server.requests[1].body["messages"][-1]["content"]


def test_a_prompt_may_come_from_standard_input(folder, here):
    with endpoint("Yes.") as server:
        out, _ = start(folder, here, "-p", "-", *at(server)).communicate(b"Is it?\n", timeout=60)
    assert out == b"Yes.\n"
    assert server.requests[0].body["messages"] == [{"role": "user", "content": "Is it?\n"}]


def test_json_says_all_there_is_to_say(folder, chat):
    with endpoint(READ, "Under the mat.") as server:
        done = chat("-p", "Where?", *at(server), *with_files(folder), "--name", "keys", "--json")
    said = json.loads(done.out)
    assert {key: value for key, value in said.items() if key != "messages"} == {
        "name": "keys",
        "answer": "Under the mat.",
        "completed": True,
        "stop_reason": "answer",
        "detail": "",
        "model": "m",
        "usage": {"prompt_tokens": 14, "completion_tokens": 10, "total_tokens": 24},
        "cost": None,
    }
    assert said["messages"] == stored(folder, "keys")[0].messages()
    assert [message["role"] for message in said["messages"]] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(completion(""), "empty"), (completion("Cut o", finish="length"), "length"), ("error_401", "model error")],
)
def test_without_an_answer_the_exit_code_is_1_and_the_reason_is_told(folder, chat, reply, reason):
    async def refuse(exchange):
        await exchange.json({"error": {"message": "no"}}, status=401)

    with endpoint(refuse if reply == "error_401" else reply) as server:
        done = chat("-p", "Hi", *at(server), "--name", "x")
    assert (done.code, done.out) == (1, "")
    assert f"no answer: {reason}" in done.err
    assert "--resume x" in done.err
    assert stored(folder, "x")[1]["stopped"] == reason


def test_a_tool_that_the_harness_cannot_run_is_shown_as_an_error_and_the_conversation_goes_on_later(
    folder, chat, tmp_path
):
    path, command = os.environ["PATH"], tool_call("terminal", '{"command": "echo fine"}')
    offered = ["--toolsets", "terminal"]
    with endpoint(command, "It is fine.", "Yes.") as server:
        done = chat("-p", "Is it fine?", "--name", "fine", *at(server, *offered), PATH=str(tmp_path))
        assert done.code == 1
        assert "harness error: NoSandbox" in done.err
        assert "apt install bubblewrap" in done.err
        graph, about = stored(folder, "fine")
        assert (roles(graph), about["stopped"]) == (["user", "assistant"], "harness error")
        again = chat("--resume", "fine", "-p", "And now?", *at(server, *offered), "--json", PATH=str(tmp_path))
        assert (again.code, json.loads(again.out)["stop_reason"]) == (1, "harness error")
        assert roles(stored(folder, "fine")[0]) == ["user", "assistant"]
        assert chat("--resume", "fine", *at(server, *offered), PATH=path).out == "It is fine.\n"
    assert stored(folder, "fine")[0][2]["content"] == "fine"


def test_turns_are_limited(folder, chat):
    with endpoint(READ, READ, READ) as server:
        done = chat("-p", "Where?", *at(server), *with_files(folder), "--turns", "2", "--json")
    assert (done.code, json.loads(done.out)["stop_reason"], len(server.requests)) == (1, "turns", 2)


def test_parameters_reach_the_endpoint_and_the_record(folder, chat):
    with endpoint("Hi.") as server:
        chat("-p", "Hi", *at(server), "--temperature", "0.5", "--param", "seed=7", "--param", "user=me", "--name", "x")
    sent = {"temperature": 0.5, "seed": 7, "user": "me"}
    assert sent.items() <= server.requests[0].body.items()
    assert sent.items() <= stored(folder, "x")[0].last_call().call.params.items()


def test_a_prefill_is_sent_and_no_part_of_the_conversation(folder, chat):
    (folder / "prefill.json").write_text('[{"role": "user", "content": "An example."}]')
    with endpoint("Hi.") as server:
        chat("-p", "Hi", *at(server), "--system", "Be kind.", "--prefill", "prefill.json", "--name", "x")
    assert [m["content"] for m in server.requests[0].body["messages"]] == ["Be kind.", "An example.", "Hi"]
    assert roles(stored(folder, "x")[0]) == ["system", "user", "assistant"]


def test_an_ephemeral_prompt_is_sent_and_never_in_a_file_or_a_message(folder, chat):
    with endpoint("Hi.") as server:
        done = chat(
            *("-p", "Hi", *at(server), "--system", "Be kind.", "--ephemeral-system-prompt", "Be odd."),
            *("--save-trajectories", "--json", "--name", "x"),
        )
    assert server.requests[0].body["messages"][0]["content"] == "Be kind.\n\nBe odd."
    assert "Be odd" not in done.out
    assert "Be odd" not in (folder / "trajectory_samples.jsonl").read_text()
    assert "Be odd" not in json.dumps(stored(folder, "x")[0].lines())


def test_the_trajectory_of_a_failed_turn_goes_to_the_failed(folder, chat):
    with endpoint(completion("")) as server:
        chat("-p", "Hi", *at(server), "--save-trajectories")
    assert not (folder / "trajectory_samples.jsonl").exists()
    assert [row["completed"] for row in load_trajectories(folder / "failed_trajectories.jsonl")] == [False]


def test_hostile_answers_do_not_control_the_terminal(folder, chat):
    with endpoint("a\x1b[2Jb\u202ec") as server:
        assert chat("-p", "Hi", *at(server)).out == "a\\x1b[2Jb\\u202ec\n"


def test_our_own_key_is_taken_out_of_what_tools_return(folder, chat):
    (folder / "notes.txt").write_text("sk-very-secret-indeed")
    with endpoint(READ, "Fine.") as server:
        chat("-p", "Read", *at(server), *with_files(folder), OPENAI_API_KEY="sk-very-secret-indeed")
    assert "very-secret" not in json.dumps(server.requests[1].body)


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "ask something with -p"),
        (("-p", " "), "the prompt is empty"),
        (("-p", "x"), "no model was named"),
        (("-p", "x", "-m", "m", "--base-url", "nonsense"), "no http or https URL"),
        (("-p", "x", "--param", "seed"), "name=value"),
        (("-p", "x", "--param", "seed=1", "--param", "seed=2"), "--param seed is given twice"),
        (("-p", "x", "--param", "temperature=1", "--temperature", "0.5"), "the temperature is given twice"),
        (("-p", "x", "--resume", "a", "--name", "b"), "--resume goes on under the name it has"),
        (("-p", "x", "--resume", "a"), "there is no store"),
        (("-p", "x", "-m", "local", "--sandbox", "moat"), "sandbox.kind must be one of"),
    ],
)
def test_bad_arguments_are_told_in_one_line(chat, arguments, said):
    done = chat(*arguments)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_a_name_that_is_taken_is_refused_before_anything_is_asked(folder, chat):
    with endpoint("One.", "Two.") as server:
        chat("-p", "Hi", *at(server), "--name", "x")
        done = chat("-p", "Ho", *at(server), "--name", "x")
    assert done.code == 1
    assert "holds another conversation" in done.err
    assert len(server.requests) == 1


# ── going on ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_killed_chat_resumes_without_losing_or_repeating_a_step(folder, here, chat):
    gate = Gate()
    with endpoint(READ, gate, "Under the mat.") as server:
        killed = start(folder, here, "-p", "Where?", *at(server), *with_files(folder), "--name", "x")
        assert gate.begun.wait(20)
        killed.kill()
        killed.communicate()
        graph, about = stored(folder, "x")
        assert (roles(graph), about["stopped"]) == (["user", "assistant", "tool"], None)
        gate.open()
        done = chat("--resume", "x", "--workspace", str(folder))
    assert (done.code, done.out) == (0, "Under the mat.\n")
    asked = server.requests[2].body
    assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "tool"]
    assert {tool["function"]["name"] for tool in asked["tools"]} >= {"read_file"}
    assert roles(stored(folder, "x")[0]) == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_chat_is_recorded_as_such_and_goes_on_with_a_new_prompt(folder, here, chat, number):
    gate = Gate()
    with endpoint(gate, "Both.") as server:
        stopped = start(folder, here, "-p", "First", *at(server), "--name", "x")
        assert gate.begun.wait(20)
        stopped.send_signal(number)
        out, _ = stopped.communicate(timeout=20)
        assert (stopped.returncode, out) == (130, b"")
        assert stored(folder, "x")[1]["stopped"] == "interrupted"
        gate.open()
        done = chat("-p", "Second", "--resume", "x")
    assert done.out == "Both.\n"
    assert [message["content"] for message in server.requests[1].body["messages"]] == ["First", "Second"]


def test_unanswered_tool_calls_are_answered_before_a_new_prompt(folder, chat):
    graph = MessageGraph([{"role": "user", "content": "Where?"}])
    calls = READ["choices"][0]["message"]["tool_calls"]
    graph.record({"role": "assistant", "content": None, "tool_calls": calls}, Call(model="other"))
    with open_store(folder / "stemma.db") as store:
        store.save(graph, "x")
    with endpoint("Fine.") as server:
        done = chat("--resume", "x", "-p", "Say it", *at(server), *with_files(folder), "--json")
    assert [message["role"] for message in json.loads(done.out)["messages"]] == [
        *("user", "assistant", "tool", "user", "assistant")
    ]
    assert [sampled.call.model for sampled in stored(folder, "x")[0].calls()] == ["other", "m"]


def test_who_answered_last_is_asked_again_if_nothing_else_says_whom_to_ask(folder, chat):
    graph = MessageGraph([{"role": "user", "content": "Hi"}])
    graph.record({"role": "assistant", "content": "Ho"}, Call(model="m"))
    with open_store(folder / "stemma.db") as store:
        store.save(graph, "x")
    with endpoint() as server:
        chat("--resume", "x", "-p", "Again", "--base-url", server.base_url)
    assert server.requests[0].body["model"] == "m"


def test_a_store_does_not_say_where_the_key_of_a_configured_model_goes(folder, chat, here):
    with endpoint() as ours, endpoint() as theirs:
        graph = MessageGraph([{"role": "user", "content": "Hi"}])
        with open_store(folder / "stemma.db") as store:
            store.save(graph, "x", metadata={"chat": {"model": "mine", "base_url": theirs.base_url}})
        (folder / ".stemma").mkdir()
        (folder / ".stemma" / "config.yaml").write_text(
            f"models:\n  mine:\n    base_url: {ours.base_url}\n    api_key_env: MY_KEY\n"
        )
        trust_project(folder, here)
        chat("--resume", "x", MY_KEY="sk-mine")
    assert (len(ours.requests), len(theirs.requests)) == (1, 0)


def test_notes_that_make_no_sense_are_passed_over(folder, chat):
    with open_store(folder / "stemma.db") as store:
        store.save(MessageGraph([{"role": "user", "content": "Hi"}]), "x", metadata={"chat": {"model": 7}})
    with endpoint() as server:
        assert chat("--resume", "x", *at(server)).code == 0


def test_a_finished_conversation_is_asked_nothing_without_a_prompt(folder, chat):
    with endpoint("Hi.") as server:
        chat("-p", "Hi", *at(server), "--name", "x")
        done = chat("--resume", "x")
    assert done.code == 1
    assert "ask something with -p" in done.err
    assert len(server.requests) == 1


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_question_loads_no_library_that_it_does_not_use(folder, here):
    (folder / "replies.jsonl").write_text('"Hi."\n')
    code = (
        "import sys; from stemma.cli.main import main; main(sys.argv[1:]); "
        "print({'aiohttp', 'rich', 'prompt_toolkit', 'mcp'} & set(sys.modules))"
    )
    program = [sys.executable, "-c", code, "chat", "-p", "Hi", "-m", "scripted:replies.jsonl", "--toolsets", "file"]
    environment = os.environ | {"PYTHONPATH": PYTHONPATH} | here
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["Hi.", "set()"]


def test_a_resumed_conversation_replaces_its_trajectory_and_does_not_repeat_it(chat, tmp_path):
    with endpoint("First.", "Second.") as server:
        chat("-p", "One", *at(server), "--name", "x", "--save-trajectories")
        chat("-p", "Two", *at(server), "--resume", "x", "--save-trajectories")
    entries = list(load_trajectories(tmp_path / "trajectory_samples.jsonl"))
    assert len(entries) == 1
    assert [turn["from"] for turn in entries[0]["conversations"]].count("human") == 2
