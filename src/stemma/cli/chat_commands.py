"""What one can type into a chat beside messages: `/help` lists it.

Each command is a function of the chat and what stands behind its name; its docstring is its line of help. It returns
True if the model is to be asked next. `tests/cli/test_chat_live.py` runs them at a real terminal.
"""

import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from stemma.cli.chat_edits import BadCommand, cut_for_retry, edit_text, editable_text, take_back
from stemma.cli.chat_showing import Shown
from stemma.cli.conversing import Session

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


class Leave(Exception):
    """The user wants to go."""


class Chat(Protocol):
    """What commands act on."""

    session: Session
    shown: Shown
    edited: int | None
    """The message edited last, if nothing was asked since."""

    async def read(self, prompt: str, given: str) -> str:
        """Text from the keyboard, `given` standing there to be changed."""
        ...


Command = Callable[[Chat, str], Awaitable[bool | None]]


def split_command(text: str) -> tuple[str, str] | None:
    """The command and what stands behind it; None for a message.

    >>> split_command("/edit 3 new text"), split_command("/etc/hosts is a file")
    (('edit', '3 new text'), None)
    """
    found = _COMMAND.fullmatch(text.strip())
    return (found[1], found[2] or "") if found else None


async def run_command(chat: Chat, name: str, rest: str) -> bool:
    """Do what a command says; whether to ask the model next."""
    command = COMMANDS.get(name)
    if command is None:
        raise BadCommand(f"there is no /{name}; /help lists what there is")
    return bool(await command(chat, rest))


async def _help(chat: Chat, rest: str) -> None:
    """/help: this list"""
    lines = [inspect.getdoc(command) or "" for command in COMMANDS.values()]
    entries = [line.partition(": ") for line in lines]
    more = 'A message goes on in the next line after a backslash, between """ and """, or after Alt-Enter.'
    chat.shown.block("\n".join([*(f"  {usage:18} {what}" for usage, _, what in entries), more]))


async def _edit(chat: Chat, rest: str) -> None:
    """/edit N [TEXT]: change message N, in place or to TEXT; /retry then goes on from there"""
    number, _, text = rest.partition(" ")
    graph = chat.session.graph
    try:
        index = range(len(graph))[int(number)]
    except (ValueError, IndexError):
        raise BadCommand(f"/edit N: N is the number of a message, from 0 to {len(graph) - 1}") from None
    before = editable_text(graph, index)
    chat.shown.note(edit_text(graph, index, text or await chat.read(f"edit {index} ❯ ", before)))
    chat.edited = index
    await chat.session.save()


async def _undo(chat: Chat, rest: str) -> None:
    """/undo: take back the last user turn and all that came of it"""
    chat.shown.note(take_back(chat.session.graph))
    chat.edited = None
    await chat.session.save()


async def _retry(chat: Chat, rest: str) -> bool:
    """/retry: sample again, from the message edited last or from the last user turn"""
    kept = cut_for_retry(chat.session.graph, chat.edited)
    if kept:
        chat.shown.note(kept)
    return True


async def _branch(chat: Chat, rest: str) -> None:
    """/branch [NAME]: go on in a copy; the conversation so far stays under its name"""
    session = chat.session
    before, name = session.name, rest.strip() or _next_name(session)
    if name in session.store.names():
        raise BadCommand(f"{name!r} is a conversation already; choose another name")
    await session.branch(name)
    chat.shown.note(f"this is {name} now; {before} stays as it is")


def _next_name(session: Session) -> str:
    taken, number = set(session.store.names()), 2
    while f"{session.name}-{number}" in taken:
        number += 1
    return f"{session.name}-{number}"


async def _graph(chat: Chat, rest: str) -> None:
    """/graph: draw every line of this conversation"""
    from stemma.cli.drawing import as_line
    from stemma.cli.lanes import rows
    from stemma.cli.screen import Screen

    screen = Screen()
    for row in rows(chat.session.graph, chat.session.name):
        screen.line(*as_line(row, screen.width))


async def _save(chat: Chat, rest: str) -> None:
    """/save [FILE]: write the messages to FILE.json, or add a trajectory to FILE.jsonl; the store has all anyway"""
    session = chat.session
    await session.save()
    if not rest:
        chat.shown.note(f"saved as {session.name}; `stemma chat --resume {session.name}` goes on")
        return
    path = Path(rest.strip()).expanduser()
    if path.suffix == ".jsonl":
        _add_trajectory(session, path)
    else:
        from stemma.cli.screen import as_json

        path.write_text(as_json(session.graph.messages()) + "\n", encoding="utf-8")
    chat.shown.note(f"wrote {path}")


def _add_trajectory(session: Session, path: Path) -> None:
    from stemma.formats.files import save_trajectory
    from stemma.formats.hermes import to_trajectory

    talk = session.conversation
    tools = [tool.schema() for tool in talk.agent.setup.tools.values()]
    turns = to_trajectory(session.graph.messages(), tools)
    save_trajectory(turns, talk.agent.setup.model.name, talk.completed, path)


async def _tools(chat: Chat, rest: str) -> None:
    """/tools: what the model can call"""
    tools = chat.session.conversation.agent.setup.tools.values()
    lines = [f"  {tool.name:18} {tool.description.partition('.')[0]}" for tool in tools]
    chat.shown.block("\n".join(lines) or "no tools; start with --toolsets file,terminal, or --tools FILE")


async def _model(chat: Chat, rest: str) -> None:
    """/model [NAME]: say which model answers, or go on with another"""
    if rest:
        chat.session.change_model(rest.strip())
    chat.shown.note(f"{chat.session.conversation.agent.setup.model.name} answers")


async def _usage(chat: Chat, rest: str) -> None:
    """/usage: tokens and money so far"""
    talk = chat.session.conversation
    counts = [f"{key} {value:,}" for key, value in talk.usage.items()]
    cost = "cost not known" if talk.cost is None else f"${talk.cost:.4f}"
    chat.shown.note(", ".join([*counts, cost]))


async def _quit(chat: Chat, rest: str) -> None:
    """/quit: leave; so does Ctrl-D"""
    raise Leave


COMMANDS: dict[str, Command] = {
    "help": _help,
    "edit": _edit,
    "undo": _undo,
    "retry": _retry,
    "branch": _branch,
    "graph": _graph,
    "save": _save,
    "tools": _tools,
    "model": _model,
    "usage": _usage,
    "quit": _quit,
}
