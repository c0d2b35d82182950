"""`stemma chat` at a terminal: type, watch, change your mind.

Messages are numbered as the graph numbers them. Ctrl-C stops the turn that runs, which stays resumable; at the prompt a
second Ctrl-C leaves, as Ctrl-D does. A tool call that was stopped is answered as stopped when the next message comes,
never run again unasked. `tests/cli/test_chat_live.py` drives it through a real terminal.
"""

import sys
from contextlib import aclosing

from stemma.cli.brief import one_line
from stemma.cli.chat_commands import Leave, run_command, split_command
from stemma.cli.chat_edits import decline_open_calls, is_unfinished
from stemma.cli.chat_input import Keyboard, as_said
from stemma.cli.chat_showing import Shown
from stemma.cli.chat_stopping import stoppable
from stemma.cli.conversing import Session
from stemma.errors import StemmaError

_RECALLED = 4
"""How many messages of a conversation that goes on are shown."""


class LiveChat:
    """A conversation at a terminal."""

    def __init__(self, session: Session, keyboard: Keyboard) -> None:
        self.session, self._keyboard = session, keyboard
        self.shown = Shown(sys.stdout, sys.stdout)
        self.edited: int | None = None
        self._stopped = False
        """Whether the last thing typed was Ctrl-C."""

    async def talk(self) -> None:
        """Until the user leaves."""
        self._greet()
        if is_unfinished(self.session.graph):
            self.shown.note("going on where it stopped; Ctrl-C stops it")
            await self._ask(None)
        while True:
            try:
                await self._once()
            except (Leave, EOFError):
                break
            except KeyboardInterrupt:
                if self._stopped:
                    break
                self._stopped = True
                self.shown.note("Ctrl-C again, or Ctrl-D, leaves")
            except (StemmaError, OSError) as problem:
                self.shown.note(str(problem), "red")
        if self.session.name in self.session.store.names():  # else nothing was said
            self.shown.note(f"`stemma chat --resume {self.session.name}` goes on")

    async def read(self, prompt: str, given: str = "") -> str:
        """Text from the keyboard."""
        typed = await self._keyboard.read(prompt, given=given)
        self._stopped = False
        return typed

    def _greet(self) -> None:
        graph = self.session.graph
        first = max(len(graph) - _RECALLED, 0)
        for index, message in enumerate(graph[first:], first):
            self.shown.note(f"{index} {message['role']}: {one_line(message, 100)}")
        self.shown.note(f"{self.session.name}, {self.session.conversation.agent.setup.model.name}; /help helps")

    async def _once(self) -> None:
        said = as_said(await self.read(f"{len(self.session.graph)} ❯ "))
        if not said:
            return
        command = split_command(said)
        if command is None:
            decline_open_calls(self.session.graph)
            await self._ask(said)
        elif await run_command(self, *command):
            await self._ask(None)

    async def _ask(self, prompt: str | None) -> None:
        self.edited = None
        self._stopped = not await stoppable(self._turn(prompt))
        if self._stopped:
            self.shown.note("stopped; write on, /retry, or Ctrl-C again to leave", "red")

    async def _turn(self, prompt: str | None) -> None:
        async with aclosing(self.session.turn(prompt, self.shown.delta)) as facts:
            async for fact in facts:
                self.shown.fact(fact, len(self.session.graph))
