"""A turn on the screen: words, thoughts, tools, and text that would like to be more than text."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.agent.facts import Asking, Compacted, Replied, Stopped, ToolRan, ToolStarted
from stemma.cli.chat_showing import Shown
from stemma.core.call import Call
from stemma.models.protocol import Delta, Reply
from stemma.tools.tool import ToolResult


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def reply(content: str) -> Reply:
    return Reply(message={"role": "assistant", "content": content}, call=Call(model="m"))


def test_the_answer_and_all_else_go_to_their_own_places():
    out, aside = io.StringIO(), io.StringIO()
    shown = Shown(out, aside)
    shown.fact(Asking(1), 1)
    for delta in (Delta("reasoning", "Hm"), Delta("reasoning", "…"), Delta("text", "Let me "), Delta("text", "see.")):
        shown.delta(delta)
    shown.fact(Replied(reply("Let me see.")), 2)
    shown.fact(ToolStarted("c1", "read_file", '{"path":\n"x"}'), 2)
    shown.fact(ToolRan("c1", "read_file", ToolResult(text="1\tone\n2\ttwo"), 0.123), 3)
    shown.fact(ToolRan("c2", "read_file", ToolResult(text="y" * 500, ok=False), 2.0), 4)
    shown.fact(Compacted(9, 4, reply("Σ")), 4)
    shown.fact(Stopped("turns"), 4)
    assert out.getvalue() == "Let me see.\n"
    assert aside.getvalue().splitlines() == [
        "Hm…",
        '→ read_file {"path": "x"}',
        "2 ✓ read_file 0.12 s  1 one 2 two",
        f"3 ✗ read_file 2.00 s  {'y' * 99}…",
        "the context was shortened from 9 messages to 4; the longer line is kept",
        "no answer: turns",
    ]


def test_a_reply_that_did_not_stream_is_shown_when_it_is_there():
    out = io.StringIO()
    shown = Shown(out, None)
    shown.fact(Asking(1), 1)
    shown.fact(Replied(reply("All at once.")), 2)
    shown.fact(Stopped("answer"), 2)
    assert out.getvalue() == "All at once.\n"


def test_a_reply_that_breaks_off_comes_anew_on_a_line_of_its_own():
    screen = io.StringIO()
    shown = Shown(screen, screen)
    for delta in (Delta("text", "Half an"), Delta("again", "the connection was reset"), Delta("text", "A whole one.")):
        shown.delta(delta)
    shown.fact(Replied(reply("A whole one.")), 2)
    assert screen.getvalue().splitlines() == [
        "Half an",
        "the reply broke off (the connection was reset); it comes anew",
        "A whole one.",
    ]


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    Shown(screen, screen).delta(Delta("reasoning", "Hm"))
    assert screen.getvalue() == "\x1b[2mHm\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal()
    Shown(screen, screen).delta(Delta("reasoning", "Hm"))
    assert screen.getvalue() == "Hm"


@given(st.text(), st.text(), st.text())
def test_no_text_of_a_model_or_a_tool_reaches_the_terminal_as_control(words, thought, result):
    screen = io.StringIO()
    shown = Shown(screen, screen)
    shown.delta(Delta("reasoning", thought))
    shown.delta(Delta("text", words))
    shown.fact(ToolStarted(words, thought, result), 1)
    shown.fact(ToolRan(words, thought, ToolResult(text=result), 0.0), 2)
    shown.fact(Stopped("model error", words), 2)
    assert all(char in "\n\t" or ord(char) >= 0x20 for char in screen.getvalue())
    assert not set(screen.getvalue()) & set("\x7f\x9b\u202e\u2066\u200b\ud800")
