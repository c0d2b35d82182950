"""150 strings that attack terminals, in every field, through every command: none arrives as more than text."""

import json
import sqlite3
import unicodedata
from pathlib import Path

import pytest

from cli.conftest import Run
from cli.conversations import asks, by, say
from stemma import MessageGraph, open_store

SEQUENCES = [
    "\x1b[31mred",
    "\x1b[2J",
    "\x1b[H\x1b[J",
    "\x1b[1A\x1b[2K",
    "\x1b[?1049h",
    "\x1b[?25l",
    "\x1b[6n",
    "\x1b[c",
    "\x1b[21t",
    "\x1bc",
    "\x1b7\x1b8",
    "\x1b(0",
    "\x1b#8",
    "\x1b]0;title\x07",
    "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]1337;File=:AAAA\x07",
    "\x1b]133;A\x07",
    "\x1bPq#0\x1b\\",
    "\x1bP$q\x1b\\",
    "\x1b_app\x1b\\",
    "\x1b^pm\x1b\\",
    "\x1bXsos\x1b\\",
    "\x9b31m",
    "\x9d0;title\x9c",
    "\x90q\x9c",
    "\x85next",
    "\x84\x88\x8d",
    "\x07",
    "\x08" * 8 + "over",
    "safe\roverwritten",
    "\x0b\x0c",
    "\x0e\x0f",
    "\x00",
    "\x7f",
    "\x1a\x1c\x1d\x1e\x1f",
    "\x05\x11\x13\x16",
    "[bold red]markup[/]",
    "[link=https://evil.example]x[/link]",
    "[/]",
    ":smile: [@click=app.quit]x[/]",
    "\ud800",
    "\udfff\ud83d",
    "\ufffe\uffff\U0001fffe",
    "\ufdd0",
    "\u2028\u2029",
    "\ufeff\u200b\u200c\u200d\u2060",
    "\xad\u034f\u115f\u3164",
    "\U000e0041\U000e007f",
    "\ufe00\U000e0100",
    "\ufff9\ufffa\ufffb",
]
BIDI = [
    f"{mark}abc\u05d0{end}"
    for mark in "\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200e\u200f\u061c"
    for end in ("", "\u202c", "\u2069")
]
INSIDE = [f"before {text} after" for text in (*SEQUENCES, *BIDI[:20])]
STRINGS = [*SEQUENCES, *BIDI, *INSIDE]


PLANES = range(0x10000, 0x110001, 0x10000)
UNSEEN = [
    range(0xFDD0, 0xFDF0),
    range(0xFE00, 0xFE0E),
    range(0xE0000, 0xE1000),
    *(range(end - 2, end) for end in PLANES),
]
"""No characters, and marks that have no look of their own."""


def harmless(text: str, *, block: bool = False) -> bool:
    """Whether a terminal would only show it; decided by Unicode's own tables, not by ours."""
    suspects = set(text) - set("\n\t" if block else "\n")
    return not any(
        unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") or any(ord(char) in unseen for unseen in UNSEEN)
        for char in suspects
    )


def conversation(strings: list[str], change: str = "") -> MessageGraph:
    """Every string in every field that takes one."""
    graph = MessageGraph()
    for number, text in enumerate(strings):
        said = text + change if number % 2 else change + text
        graph.append({"role": said, "content": said, "name": said, said: {said: said}})
        reply = asks(said, said, said) | {"content": [{"type": said, "text": said}], "reasoning": said}
        call = by(said, id=said, finish_reason=said, usage={said: said}, extra={said: said}, tools=[{"name": said}])
        graph.record(reply, call)
        graph.append(say("tool", said, tool_call_id=said), contains=MessageGraph([say("user", said)]))
    return graph


@pytest.fixture(scope="module")
def hostile_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "hostile.db"
    graph = conversation(STRINGS)
    with graph.edit():
        graph[:] = conversation(STRINGS, "!").messages()
    with open_store(path) as store:
        store.save(graph, "[red]markup[/] in a name", metadata={STRINGS[0]: STRINGS[1]})
    return path


NAME = "[red]markup[/] in a name"


def test_there_are_150_of_them():
    assert len(set(STRINGS)) >= 150
    assert not any(harmless(text) for text in STRINGS if "[" not in text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["log"],
        ["log", NAME],
        ["log", f"{NAME}@0"],
        ["log", NAME, "--graph"],
        ["log", NAME, "--mermaid"],
        ["diff", f"{NAME}@0", NAME],
        ["verify", "STORE"],
        ["merge", "new.db", "STORE"],
    ],
    ids=lambda arguments: " ".join(arguments).replace(NAME, "NAME"),
)
def test_no_command_writes_a_control(run: Run, hostile_store: Path, arguments: list[str]):
    store = [] if arguments[0] in ("verify", "merge") else ["-s", str(hostile_store)]
    filled = [str(hostile_store) if argument == "STORE" else argument for argument in arguments]
    code, out, err = run(*filled, *store)
    assert (code, err) == (0, "")
    assert harmless(out)
    assert len(out) > 10
    if arguments[0] != "merge":
        _, out, _ = run(*filled, *store, "--json")
        assert harmless(out)
        assert out.isascii()
        assert json.loads(out)


def test_every_message_is_shown_without_a_control(run: Run, tmp_path: Path):
    with open_store(tmp_path / "stemma.db") as store:
        for number, text in enumerate(STRINGS):
            store.save_soon(conversation([text]), f"number {number}")
    for number in range(len(STRINGS)):
        for index in range(3):
            code, out, err = run("show", f"number {number}:{index}")
            assert (code, err) == (0, "")
            assert harmless(out, block=True)
    assert "\\x1b[31mred" in run("show", "number 0").out


@pytest.mark.parametrize("text", [text for text in STRINGS if "\x00" not in text], ids=ascii)
def test_no_complaint_writes_a_control(run: Run, hostile_store: Path, text: str):
    for arguments in (["show", text], ["diff", text, NAME], ["log", text, "--graph"], ["log", f"--{text}"], [text]):
        code, out, err = run(*arguments) if arguments[0] == text else run(*arguments, "-s", str(hostile_store))
        assert (code, out) == (1, "")
        assert err.startswith("stemma: ")
        assert err.count("\n") == 1
        assert harmless(err)
    code, _, err = run("verify", f"{text}.db")
    assert code == 1
    assert harmless(err)


def test_findings_about_hostile_records_are_harmless(run: Run, demo_store: Path):
    with sqlite3.connect(demo_store) as db:
        db.execute("UPDATE graph SET name = ? WHERE name = 'demo'", ("\x1b[31m\u202edemo",))
        db.execute("UPDATE run SET name = ?", ("\x1b]0;x\x07",))
    db.close()
    code, out, err = run("verify")
    assert code == 2
    assert harmless(out + err)
    assert "\\x1b[31m" in out
    assert harmless(run("log").out)
