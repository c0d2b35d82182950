"""Ids of messages, nodes and calls.

A message's id covers every field. A node's id covers its parent's id and its message's id, so equal prefixes
are one prefix, and re-chaining after an edit never touches a body. A call's id covers the node it saw, the
node it made and all that is known of it; two samples alike in all of that differ in their event.
`Store.verify` re-derives all three. Inside the program an id is 32 bytes; people see hexadecimal.

    root = H("",   m0)      m0 m1 m2        an edit of m1 keeps the root,
    n1   = H(root, m1)      └─ m1' m2       and gives m1' and m2 new nodes
"""

from collections.abc import Iterable
from hashlib import sha256
from itertools import accumulate

Id = bytes
"""32 bytes of SHA-256."""

ROOT: Id = sha256(b"stemma/root/1").digest()
"""The parent of every first message."""


def digest(kind: str, *parts: bytes) -> Id:
    """The id of a thing made of `parts`; kinds never collide, nor do differently cut parts."""
    pieces = [f"stemma/{kind}/1".encode()]
    for part in parts:
        pieces += (len(part).to_bytes(8, "big"), part)
    return sha256(b"".join(pieces)).digest()


def node_id(parent: Id, message: Id) -> Id:
    """The id of `message` standing after `parent`."""
    return sha256(parent + message).digest()


def chain(parent: Id, messages: Iterable[Id]) -> list[Id]:
    """The ids of the nodes that `messages` make, one after another, below `parent`."""
    nodes = accumulate(messages, node_id, initial=parent)
    next(nodes)
    return list(nodes)


def call_id(saw: Id, made: Id, parts: Iterable[bytes], event: bytes) -> Id:
    """The id of one model call, from `Call.parts` and what tells it from calls alike in all of that."""
    return call_id_of_hashes(saw, made, [sha256(part).digest() for part in parts], event)


def call_id_of_hashes(saw: Id, made: Id, hashes: Iterable[bytes], event: bytes) -> Id:
    """The same from the hash of each part: who has only those can derive the id too (`core/receipts.py`)."""
    return digest("call", saw, made, *hashes, event)
