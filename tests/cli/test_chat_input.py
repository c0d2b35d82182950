"""What is typed is what is meant, over as many lines as it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.cli.chat_commands import split_command
from stemma.cli.chat_input import Keyboard, as_said, is_finished


@pytest.mark.parametrize(
    ("typed", "finished", "meant"),
    [
        ("one line", True, "one line"),
        ("goes on\\", False, None),
        ("goes on\\\nand ends", True, "goes on\nand ends"),
        ('"""', False, None),
        ('"""\na\n\nb', False, None),
        ('"""\na\n\nb\n"""', True, "a\n\nb"),
        ('"""one"""', True, "one"),
        ('"""ends in a backslash\\"""', True, "ends in a backslash\\"),
        ('say """ in the middle', True, 'say """ in the middle'),
        ("   ", True, ""),
        ("a \\ in the middle", True, "a \\ in the middle"),
    ],
)
def test_where_a_message_ends_and_what_it_says(typed, finished, meant):
    assert is_finished(typed) is finished
    if finished:
        assert as_said(typed) == meant


@given(st.text().filter(lambda text: '"""' not in text))
def test_any_text_can_be_said_in_a_block(text):
    block = f'"""\n{text}\n"""'
    assert is_finished(block)
    assert as_said(block) == text.strip("\n")


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("/help", ("help", "")),
        ("/edit 3 new\ntext", ("edit", "3 new\ntext")),
        ("/save  out.json", ("save", "out.json")),
        ("/etc/hosts is a file", None),
        ("/ is the root", None),
        ("what does /help do?", None),
    ],
)
def test_a_command_is_a_word_behind_a_slash(typed, command):
    assert split_command(typed) == command


@pytest.mark.parametrize("before", [None, 0o644, 0o666])
def test_the_history_is_for_the_user_alone(tmp_path, before):
    history = tmp_path / "state/stemma/chat_history"
    if before is not None:
        history.parent.mkdir(parents=True)
        history.write_text("\n# 2026-01-01\n+earlier\n")
        history.chmod(before)
    Keyboard(history)
    assert history.stat().st_mode & 0o777 == 0o600
    assert ("earlier" in history.read_text()) == (before is not None)
