"""What one process says arrives in the other, whatever it holds."""

import asyncio
import socket

from stemma.batch.gate import Pace
from stemma.batch.line import Begin, Done, Failed, Line, Room
from stemma.batch.order import Ended
from stemma.batch.progress import Doing, Elsewhere
from stemma.batch.record import Failure, Record
from stemma.errors import NotWritten
from stemma.formats.entries import ToolUse

RECORD = Record(
    key="k",
    metadata={"half": "\ud800", "large": 2**64 - 1, "deep": [{"é": None}]},
    tools={"read_file": ToolUse(2, 1, 1)},
    failure=Failure("Refused", "\udcff"),
    status="failed",
)
MESSAGES = [
    Begin(name="r", pace=Pace(3, 8), since=1.5),
    Room(4),
    Ended(RECORD, Record(key="k"), b"x" * 300_000),
    Elsewhere(2, 4, [("k-0-0", Doing("text \ud800", "asks", 1.0, 2.0))]),
    Done(),
]


async def pair():
    ours, theirs = socket.socketpair()
    return await Line.over(ours), await Line.over(theirs)


def test_messages_arrive_as_they_were_sent_and_the_end_is_noticed():
    async def talk():
        ours, theirs = await pair()
        for message in MESSAGES:
            ours.say(message)
        closing = asyncio.ensure_future(ours.close())
        heard = [await theirs.hear() for _ in MESSAGES]
        await closing
        assert await theirs.hear() is None
        await theirs.close()
        return heard

    assert asyncio.run(talk()) == MESSAGES


def test_an_error_arrives_with_its_kind_and_words():
    async def talk():
        ours, theirs = await pair()
        ours.say(Failed(NotWritten("the disk is full")))
        heard = await theirs.hear()
        await asyncio.gather(ours.close(), theirs.close())
        return heard.problem

    problem = asyncio.run(talk())
    assert (type(problem), str(problem)) == (NotWritten, "the disk is full")


def test_who_talks_to_an_end_that_is_gone_goes_on():
    async def talk():
        ours, theirs = await pair()
        await theirs.close()
        for _ in range(20):
            ours.say(Done())
            await ours.drain()
        assert await ours.hear() is None
        await ours.close()

    asyncio.run(talk())


def test_a_message_that_was_cut_off_is_none():
    async def talk():
        ours, theirs = socket.socketpair()
        line = await Line.over(ours)
        theirs.sendall(b"\x00\x00\x01\x00only a part")
        theirs.close()
        heard = await line.hear()
        await line.close()
        return heard

    assert asyncio.run(talk()) is None
