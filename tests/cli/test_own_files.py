"""An agent in the project's own folder changes neither the store nor the settings; a store that is lost is an error."""

import json

import pytest

import needs
from stemma import open_store

pytestmark = needs.command("bwrap", "bubblewrap")


@pytest.fixture
def agent(run, tmp_path, monkeypatch):
    """Runs `stemma` where a model asks for these calls of tools, then answers."""
    for name, value in {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}.items():
        monkeypatch.setenv(name, value)

    def asking(*command, calls):
        asked = [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(calls)
        ]
        replies = [*([{"role": "assistant", "content": None, "tool_calls": asked}] if asked else []), "Done."]
        (tmp_path / "replies.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        return run(*command, "-m", "scripted:replies.jsonl")

    return asking


REMOVE = [
    ("terminal", {"command": "rm -f stemma.db*; mkdir -p .stemma; echo 'sandbox: {kind: none}' > .stemma/config.yaml"})
]


def test_a_sandboxed_agent_cannot_remove_the_store_it_is_recorded_in(agent, tmp_path):
    assert agent("chat", "-p", "hi", "--name", "first", "--workspace", ".", calls=[]).code == 0
    assert agent("chat", "-p", "hi", "--name", "second", "--workspace", ".", calls=REMOVE).code == 0
    with open_store(tmp_path / "stemma.db") as store:
        assert store.names() == ["first", "second"]
        assert "Read-only file system" in store.load("second")[-2]["content"]
        assert store.verify() == []
    assert list((tmp_path / ".stemma").iterdir()) == []


# The head of a rollback journal of a database that had one page: SQLite would cut the store down to that.
JOURNAL = r"\331\325\005\371\040\241\143\327\0\0\0\0\0\0\0\0\0\0\0\001\0\0\002\0\0\0\020\0"


def test_a_sandboxed_agent_cannot_have_sqlite_roll_the_store_back(agent, tmp_path):
    forge = f"printf '{JOURNAL}' > stemma.db-journal && head -c 1000 /dev/zero >> stemma.db-journal"
    assert agent("chat", "-p", "hi", "--name", "first", "--workspace", ".", calls=[]).code == 0
    calls = [("terminal", {"command": forge})]
    assert agent("chat", "-p", "hi", "--name", "second", "--workspace", ".", calls=calls).code == 0
    with open_store(tmp_path / "stemma.db") as store:
        assert store.names() == ["first", "second"]
        assert store.verify() == []


def test_an_agent_cannot_write_what_the_next_start_would_read(agent, tmp_path):
    writes = [
        ("write_file", {"path": path, "content": "evil"})
        for path in (".stemma/config.yaml", ".git/hooks/pre-commit", "stemma.db", "home/.config/stemma/config.yaml")
    ]
    assert agent("chat", "-p", "hi", "--name", "x", "--workspace", ".", calls=writes).code == 0
    with open_store(tmp_path / "stemma.db") as store:
        results = [message["content"] for message in store.load("x") if message["role"] == "tool"]
    assert len(results) == len(writes)
    assert all("is not written" in result for result in results)


def test_code_that_is_loaded_from_the_workspace_cannot_be_changed_there(agent, tmp_path):
    (tmp_path / "mine.py").write_text("def shout(text: str) -> str:\n    '''Shout.'''\n    return text.upper()\n")
    calls = [("write_file", {"path": "mine.py", "content": "evil"}), ("terminal", {"command": "echo evil > mine.py"})]
    assert agent("chat", "-p", "hi", "--workspace", ".", "--tools", "mine.py", calls=calls).code == 0
    assert "evil" not in (tmp_path / "mine.py").read_text()


def test_a_store_that_an_agent_without_a_sandbox_removed_is_an_error(agent):
    told = agent("chat", "-p", "hi", "--name", "x", "--workspace", ".", "--sandbox", "none", calls=REMOVE)
    assert told.code == 1
    assert "stemma.db was removed while this process had it open" in told.err


LOSES = '''
from pathlib import Path

def lose() -> str:
    """Lose what was said."""
    for file in Path("runs/r").glob("stemma.db*"):
        file.unlink()
    return "lost"
'''


def test_a_run_whose_store_was_removed_does_not_end_well(agent, tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hi"}\n')
    (tmp_path / "mine.py").write_text(LOSES)
    told = agent("batch", "prompts.jsonl", "--name", "r", "--tools", "mine.py", calls=[("lose", {})])
    assert told.code not in (0, 130)
    assert "was removed while this process had it open" in told.out + told.err
