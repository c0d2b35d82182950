"""A message: a frozen value of JSON, made once and never changed.

It is kept as the bytes `canonical.encode` wrote, so nobody holds a reference into it and reading it back always
gives a fresh dict. Two messages are equal when their ids are: when every field is, whatever the key order.
`tests/core/test_message.py` proves both.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from stemma.core.canonical import canonical, decode, encode, plain
from stemma.core.ids import Id, digest
from stemma.errors import BadMessage

REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking", "reasoning_details", "thinking_blocks", "tool_plan")
"""Where providers put a reply's reasoning: text, save for `reasoning_details`, a list of objects."""
RAW_TURN = "raw_turn"
"""The field of a message that holds the turn of a trajectory file from which it was read; no model sees it."""


class Message(msgspec.Struct, frozen=True, eq=False, repr_omit_defaults=True):
    """One message of a context window."""

    body: bytes
    """All of it, as `canonical.encode` writes it."""
    role: str
    """system, user, assistant, tool, or whatever the provider calls it."""
    known_id: Id | None = None
    """The id, once somebody has asked for it."""

    @classmethod
    def of(cls, value: Any) -> "Message":
        """The message for an API dict (or an SDK's object); later changes to `value` do not reach it."""
        if isinstance(value, Message):
            return value
        fields, role = cls._checked(value)
        return cls(encode(fields), role)

    @classmethod
    def with_id(cls, value: Any) -> "Message":
        """The same where the id is wanted anyway, which costs half as much as asking for it later."""
        fields, role = cls._checked(value)
        return cls(encode(fields), role, message_id(fields))

    @classmethod
    def _checked(cls, value: Any) -> tuple[dict[str, Any], str]:
        fields = plain(value)
        if type(fields) is not dict:
            raise BadMessage(f"a message is a dict with a role, not {type(value).__name__}: {value!r:.80}")
        role = fields.get("role")
        if type(role) is not str or not role:
            raise BadMessage(f"a message needs a role such as 'user'; got {role!r} in {value!r:.120}")
        return fields, role

    @classmethod
    def stored(cls, body: bytes, known_id: Id) -> "Message":
        """A message read back from where `body` was kept under its id."""
        return cls(body, _role_of(body), known_id)

    @property
    def id(self) -> Id:
        """SHA-256 over every field, keys sorted."""
        if self.known_id is None:
            force_setattr(self, "known_id", message_id(decode(self.body)))
        assert self.known_id is not None
        return self.known_id

    def to_dict(self) -> dict[str, Any]:
        """A fresh API dict; change it as you like."""
        fields: dict[str, Any] = decode(self.body)
        return fields

    def get(self, field: str, default: Any = None) -> Any:
        """One field, such as `content`, `reasoning`, `tool_calls`, `tool_call_id` or `name`."""
        return self.to_dict().get(field, default)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        if self is other or self.body == other.body:
            return True
        # Key order changes no length: different lengths are different messages, without hashing either.
        return len(self.body) == len(other.body) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Message, (self.body, self.role, self.known_id))


def message_id(fields: Any) -> Id:
    """The id of a message with these fields."""
    return digest("message", canonical(fields))


def as_message(value: object) -> Message | None:
    """The message that `value` is, or None: nothing else is equal to a message."""
    try:
        return Message.of(value)
    except BadMessage:
        return None


def same_messages(line: list[Message], other: object) -> bool:
    """Whether `other`, a list of API dicts, says the same as `line`."""
    if not isinstance(other, list | tuple):
        return False
    return len(line) == len(other) and all(mine == as_message(theirs) for mine, theirs in zip(line, other, strict=True))


def as_sent(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message as a model may see it: without `raw_turn`, which is for writing files."""
    return {key: value for key, value in message.items() if key != RAW_TURN}


class _RoleOnly(msgspec.Struct):
    role: str


_decode_role = msgspec.json.Decoder(_RoleOnly).decode


def _role_of(body: bytes) -> str:
    try:
        return _decode_role(body).role
    except UnicodeDecodeError:
        role: str = decode(body)["role"]
        return role
