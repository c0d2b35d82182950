"""`stemma chat -p`: one question, one answer.

The answer goes to standard output and all else to standard error; at a terminal both come as they happen. With --json
the whole outcome is one object. The exit code is 0 only for an answer, 1 without one, 130 if it was interrupted.
`tests/cli/test_chat.py` proves it.
"""

import sys
from contextlib import aclosing
from typing import Any

from stemma.agent.facts import Stopped
from stemma.cli.chat_edits import BadCommand, is_unfinished
from stemma.cli.chat_showing import Shown
from stemma.cli.chat_stopping import stoppable
from stemma.cli.conversing import Session
from stemma.cli.screen import Screen


async def ask_once(session: Session, prompt: str | None, *, json: bool) -> int:
    """Ask, or without a prompt go on where the conversation stopped; the exit code."""
    if prompt is None and not is_unfinished(session.graph):
        raise BadCommand(f"{session.name!r} has its answer; ask something with -p")
    streams = sys.stdout.isatty() and not json
    shown = Shown(sys.stdout if streams else None, sys.stderr if sys.stderr.isatty() else None)
    await stoppable(_turn(session, prompt, shown, streams=streams))
    talk = session.conversation
    if json:
        Screen().json(outcome(session))
    elif talk.answer is not None and not streams:
        Screen().block(talk.answer)
    if not talk.completed:
        Shown(None, sys.stderr).note(_what_next(session), "red")
    else:
        shown.note(f"kept as {session.name}")
    return 0 if talk.completed else 130 if talk.stop_reason == "interrupted" else 1


async def _turn(session: Session, prompt: str | None, shown: Shown, *, streams: bool) -> None:
    async with aclosing(session.turn(prompt, shown.delta if streams else None)) as facts:
        async for fact in facts:
            if not isinstance(fact, Stopped):  # how it ended is said last, terminal or not
                shown.fact(fact, len(session.graph))


def _what_next(session: Session) -> str:
    detail = session.conversation.stopped.detail if session.conversation.stopped else ""
    why = f"{session.conversation.stop_reason}{': ' if detail else ''}{detail}"
    return f"stemma: no answer: {why}; go on with `stemma chat --resume {session.name}`"


def outcome(session: Session) -> dict[str, Any]:
    """All there is to say of a turn."""
    talk = session.conversation
    return {
        "name": session.name,
        "answer": talk.answer,
        "completed": talk.completed,
        "stop_reason": talk.stop_reason,
        "detail": talk.stopped.detail if talk.stopped else "",
        "model": talk.agent.setup.model.name,
        "usage": talk.usage,
        "cost": talk.cost,
        "messages": session.graph.messages(),
    }
