r'''What is typed into a chat: lines with a history, and messages of many lines.

A line that ends with a backslash goes on in the next; so does everything between `"""` and `"""`. What is pasted is
one message, however many lines it has. The history is for the user alone to read, and our secrets are left out of it.
`tests/cli/test_chat_input.py` and, at a real terminal, `test_chat_live.py` prove it.
'''

from pathlib import Path
from typing import TYPE_CHECKING

from stemma.cli.places import for_the_user_alone
from stemma.redact import NOTHING_SECRET, Redactor

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_BLOCK = '"""'


def is_finished(text: str) -> bool:
    r"""Whether Enter ends the message here.

    >>> is_finished("one line"), is_finished("goes on\\"), is_finished('\"\"\"goes on')
    (True, False, False)
    """
    if text.lstrip().startswith(_BLOCK):
        return text.count(_BLOCK) > 1
    return not text.endswith("\\")


def as_said(text: str) -> str:
    r"""The message that was meant.

    >>> as_said("one \\\nand two"), as_said('\"\"\"\na\nb\n\"\"\"')
    ('one \nand two', 'a\nb')
    """
    stripped = text.strip()
    if stripped.startswith(_BLOCK) and stripped.count(_BLOCK) > 1:
        inside, _, after = stripped.removeprefix(_BLOCK).partition(_BLOCK)
        return inside.strip("\n") + after
    return text.replace("\\\n", "\n").strip()


class Keyboard:
    """Reads messages from the terminal."""

    def __init__(self, history: Path, redactor: Redactor = NOTHING_SECRET) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory

        class History(FileHistory):
            def store_string(self, string: str) -> None:
                super().store_string(redactor.text(string))

        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        open(history, "ab", opener=for_the_user_alone).close()
        self._lines: PromptSession[str] = PromptSession(
            history=History(str(history)), multiline=True, key_bindings=_keys(), prompt_continuation="  … "
        )

    async def read(self, prompt: str, *, given: str = "") -> str:
        """One message; `given` stands there to be changed. KeyboardInterrupt and EOFError as a terminal gives them."""
        return await self._lines.prompt_async(prompt, default=given)


def _keys() -> "KeyBindings":
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def _(event: "KeyPressEvent") -> None:
        event.current_buffer.insert_text("\n")

    return keys
