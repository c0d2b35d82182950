"""What a check of stored records can find, and the check of a single message.

`Store.verify` returns findings; an empty list means that every id was derived again and agreed.
`tests/store/test_verify.py` damages stores in every way listed here.
"""

from typing import Literal

import msgspec

from stemma.core.canonical import canonical, decode, encode
from stemma.core.ids import Id, digest

Kind = Literal["altered", "missing", "unreachable", "cyclic", "damaged"]
"""altered: a record's content is not what its hash says; missing: something refers to what is not there;
unreachable: a record that nothing refers to; cyclic: a chain that returns to itself; damaged: cannot be read."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: Kind
    subject: str
    """Which record: `message 3f2a…`, `line 12`, `graph 'chat-1'`."""
    detail: str
    """What is wrong with it."""


def check_message(subject: str, body: bytes, known_id: Id) -> Finding | None:
    """Whether a stored body is, byte for byte, what `encode` writes for the message of that id."""
    try:
        value = decode(body)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return Finding("damaged", subject, "its body is not JSON")
    if encode(value) != body or digest("message", canonical(value)) != known_id:
        return Finding("altered", subject, "its body does not have the hash it is kept under")
    return None
