"""`stemma chat`: talk with an agent, or ask it one thing. `tests/cli/test_chat.py` runs it.

`chat_once` asks one thing, `chat_live` is the terminal, `conversing` keeps both in the store.
"""

import os
import sys
from typing import Annotated

import msgspec
import typer

from stemma.cli.agent_options import AgentFlags, takes_agent_flags
from stemma.cli.options import JsonOption

INTERRUPTED = 130


@takes_agent_flags
def chat(
    flags: AgentFlags,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Ask this, print the answer; - reads stdin.")
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="NAME", help="Go on with a stored conversation.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call a new conversation.")] = None,
    store: Annotated[str | None, typer.Option("--store", "-s", metavar="PATH", help="The store to keep it in.")] = None,
    json: JsonOption = False,
) -> None:
    """Talk with an agent at the terminal, or ask it one thing with -p.

    Every conversation is kept in the store, at every step. With -p the exit code is 0 only if there was an answer,
    1 if not, 130 if it was interrupted.
    """
    if resume and name:
        raise typer.BadParameter("--resume goes on under the name it has; /branch or a new --name makes another")
    once = prompt is not None or json or not (sys.stdin.isatty() and sys.stdout.isatty())
    if once and prompt is None and resume is None:
        raise typer.BadParameter("without a terminal there is nobody to talk with; ask something with -p")
    said = sys.stdin.read() if prompt == "-" else prompt
    if said is not None and not said.strip():
        raise typer.BadParameter("the prompt is empty; ask something")
    if store is not None:
        flags = msgspec.structs.replace(flags, settings={**flags.settings, "store": store})
    raise typer.Exit(_run(flags, said, resume, name, once=once, json=json))


def _run(flags: AgentFlags, said: str | None, resume: str | None, name: str | None, *, once: bool, json: bool) -> int:
    import asyncio

    try:
        return asyncio.run(_chat(flags, said, resume, name, once=once, json=json))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _chat(
    flags: AgentFlags, said: str | None, resume: str | None, name: str | None, *, once: bool, json: bool
) -> int:
    from stemma.cli.chat_opening import open_session

    async with open_session(flags, name=name, resume=resume) as session:
        if once:
            from stemma.cli.chat_once import ask_once

            return await ask_once(session, said, json=json)
        from stemma.cli.chat_input import Keyboard
        from stemma.cli.chat_live import LiveChat
        from stemma.cli.places import user_state

        await LiveChat(
            session, Keyboard(user_state(os.environ) / "chat_history", session.conversation.workspace.redactor)
        ).talk()
        return 0
