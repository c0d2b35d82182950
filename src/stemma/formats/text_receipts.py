"""What an export of text says about its rows, for a checker that has nothing else.

Lines of JSON, conversation by conversation:

    rollout    a conversation begins; the messages after it are numbered from 0
    message    a recorded message, byte for byte: its id is the hash of its fields
    row        a row of the data: the numbers of its messages, which of them which call sampled, how its context differs
               from what the model saw because the format has it so, and the hash of the row as written
    call       a trained call: the hashes that make its id, the nodes it saw and made among them (`core/receipts.py`)
    excluded   a reply that no row trains, and why

A node's id is made of the ids of all messages up to it, and a call's id of the nodes it saw and made. So a receipt
cannot be fitted to other messages without another call id. `formats/text_proof.py` checks all of it.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import IO

import msgspec

from stemma.core.call import encode_tools, told
from stemma.core.ids import Id, call_id_of_hashes
from stemma.core.message import Message
from stemma.core.receipts import MerkleRoot, Receipt
from stemma.formats.jsonl import to_line
from stemma.formats.training import Excluded, Sampled, TrainingRow

_encode = msgspec.json.Encoder().encode
_NO_TOKENS = sha256(told(None)).digest()


class RolloutLine(msgspec.Struct, frozen=True, tag="rollout"):
    """A conversation begins."""

    rollout: str


class TrainedAt(msgspec.Struct, frozen=True, array_like=True):
    """Message `at` of a row, which `call` sampled."""

    call: str
    at: int


class TextRow(msgspec.Struct, frozen=True, kw_only=True, tag="row"):
    """A row of the data."""

    rollout: str
    messages: list[int]
    """The numbers of the recorded messages up to the last trained one; none if the row was read from a file."""
    trained: list[TrainedAt]
    differs: list[str]
    record: str
    """The hash of the row as written."""


class TextManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What travels with an export of text."""

    preset: str
    file: str
    stemma: str
    """Which version wrote it."""
    data: str
    """SHA-256 of the file with the rows."""
    root: str
    """The Merkle root over the lines of the receipts."""
    counts: dict[str, int]
    """rows, replies, trained, excluded, off_policy_rows."""
    excluded: dict[str, int]
    """Replies by reason."""
    level: str = "L0"


class TextReceipts:
    """Receipts under way; knows the messages of one conversation at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._root = file, MerkleRoot()
        self._rollout: str | None = None
        self._numbers: dict[tuple[Id, bytes], int] = {}

    def add(self, row: TrainingRow, replies: Sequence[Sampled], differs: Iterable[str], record: bytes) -> None:
        """A row that was written as `record`, and the replies that it trains."""
        self._begin(row.rollout)
        if not row.source.line:
            self._add_unrecorded(row, replies, differs, record)
            return
        source = row.source
        numbers = [self._number(message) for message in source.line[: source.place(replies[-1].at) + 1]]
        tools = sha256(encode_tools(replies[-1].call.tools))  # which all calls of a row were offered
        receipts = [_receipt(row, reply, tools.digest()) for reply in replies]
        line = TextRow(
            rollout=row.rollout,
            messages=numbers,
            trained=[TrainedAt(one.call, source.place(reply.at)) for one, reply in zip(receipts, replies, strict=True)],
            differs=list(differs),
            record=sha256(record).hexdigest(),
        )
        for one in (line, *receipts):
            self._note(_text(one))

    def _add_unrecorded(
        self, row: TrainingRow, replies: Sequence[Sampled], differs: Iterable[str], record: bytes
    ) -> None:
        """A row that was read from a file: there is nothing recorded that it could be compared with."""
        trained = [TrainedAt(f"{row.id}/{reply.at}", row.source.place(reply.at)) for reply in replies]
        line = TextRow(
            rollout=row.rollout,
            messages=[],
            trained=trained,
            differs=list(differs),
            record=sha256(record).hexdigest(),
        )
        self._note(_text(line))

    def exclude(self, reply: Excluded) -> None:
        """A reply that no row trains."""
        self._begin(reply.rollout)
        self._note(_text(reply))

    def root(self) -> str:
        """The Merkle root over all lines so far."""
        return self._root.hex()

    def _begin(self, rollout: str) -> None:
        if rollout != self._rollout:
            self._rollout, self._numbers = rollout, {}
            self._note(_text(RolloutLine(rollout)))

    def _number(self, message: Message) -> int:
        """The number of a recorded message, which is written down when it is first met."""
        key = message.id, message.body  # the order of keys is no part of an id, but of what is written
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._note(b'{"type":"message","body":' + message.body + b"}")
        return number

    def _note(self, line: bytes) -> None:
        self._root.add(line)
        self._file.write(line + b"\n")


def _receipt(row: TrainingRow, reply: Sampled, tools: bytes) -> Receipt:
    saw, made, call = row.source.saw(reply.at), row.source.made(reply.at), reply.call
    body = sha256(call.to_bytes()).digest()
    prompt, sampled, logprobs = map(_of_tokens, (call.prompt_ids, call.sampled_ids, call.logprobs))
    name = call_id_of_hashes(saw, made, (body, tools, prompt, sampled, logprobs), reply.event)
    return Receipt(
        call=name.hex(),
        rollout=row.rollout,
        model=reply.call.model,
        context="sampled",
        saw=saw.hex(),
        made=made.hex(),
        event=reply.event.hex(),
        body=body.hex(),
        tools=tools.hex(),
        prompt=prompt.hex(),
        sampled=sampled.hex(),
        logprobs=logprobs.hex(),
    )


def _of_tokens(packed: bytes | None) -> bytes:
    return _NO_TOKENS if packed is None else sha256(told(packed)).digest()


def _text(line: msgspec.Struct) -> bytes:
    try:
        return _encode(line)
    except UnicodeEncodeError:  # a lone surrogate in a name or a detail
        return to_line(msgspec.to_builtins(line)).rstrip(b"\n")
