"""A model call: what is known of how a message was sampled.

What is trainable is decided by calls, never by the role. All is optional but the model, because an endpoint
gives what it gives. A call is frozen; `MessageGraph.record` ties it to the node it saw and the node it made.
Token ids and logprobs are packed (`int32`, `float32`, little-endian), so a long prompt costs four bytes a token;
give any sequence of numbers, and read them with `unpack_ids` and `unpack_logprobs`.
`tests/core/test_call.py` proves that a call survives its bytes.
"""

import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import asdict, force_setattr

from stemma.core.canonical import canonical, copy_plain, decode, encode, plain
from stemma.errors import BadCall, BadMessage

TOKEN_FIELDS = ("prompt_ids", "sampled_ids", "logprobs")
_TYPECODES = {"prompt_ids": "i", "sampled_ids": "i", "logprobs": "f"}
_SHAPES: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "finish_reason": (str,),
    "started": (float, int),
    "seconds": (float, int),
    "cost": (float, int),
    "params": (dict,),
    "usage": (dict,),
    "extra": (dict,),
    "tools": (list,),
}


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model call."""

    model: str
    """Who answered."""
    id: str | None = None
    """The caller's own name for this event; calls with different ones are never taken for the same."""
    tools: list[dict[str, Any]] | None = None
    """The tools offered, in the order and the form in which they were offered."""
    params: dict[str, Any] = {}
    """Sampling parameters: temperature, top_p, seed, max_tokens, …"""
    finish_reason: str | None = None
    """As the endpoint said it: stop, tool_calls, length, …"""
    usage: dict[str, Any] = {}
    """Token counts as the endpoint gave them."""
    started: float | None = None
    """Seconds since the epoch when the request left."""
    seconds: float | None = None
    """How long the reply took."""
    cost: float | None = None
    """Money, in US dollars; None means not known, never zero."""
    prompt_ids: bytes | None = None
    """The prompt as the engine saw it, packed int32."""
    sampled_ids: bytes | None = None
    """What it sampled, packed int32."""
    logprobs: bytes | None = None
    """One for each sampled id, packed float32."""
    extra: dict[str, Any] = {}
    """Whatever else the caller wants kept: request id, policy version, raw text, ephemeral prompt."""

    def __post_init__(self) -> None:
        if type(self.model) is not str or not self.model:
            raise BadCall(f"a call needs the name of its model; got {self.model!r}")
        for field in _SHAPES:
            force_setattr(self, field, _plain_field(field, getattr(self, field)))
        for field in TOKEN_FIELDS:
            force_setattr(self, field, _pack(field, getattr(self, field)))
        if self.logprobs is not None and len(self.logprobs) != len(self.sampled_ids or b""):
            raise BadCall("a call needs one logprob for each sampled id; got unequal lengths")

    def __copy__(self) -> "Call":
        """The same with dicts of its own; what it holds was checked when it was made."""
        twin: Call = super().__copy__()  # type: ignore[misc]  # msgspec has it, its stubs do not
        for field in ("tools", "params", "usage", "extra"):
            if (value := getattr(self, field)) is not None:
                force_setattr(twin, field, copy_plain(value))
        return twin

    def to_bytes(self) -> bytes:
        """Everything but the tools and the packed tokens, which are kept beside it."""
        fields = {name: value for name, value in asdict(self).items() if value not in (None, {})}
        for name in (*TOKEN_FIELDS, "tools"):
            fields.pop(name, None)
        return canonical(fields)

    def parts(self) -> tuple[bytes, ...]:
        """All that the call's id is made of, beside the nodes it saw and made."""
        tokens = map(told, (self.prompt_ids, self.sampled_ids, self.logprobs))
        return (self.to_bytes(), encode_tools(self.tools), *tokens)

    @classmethod
    def from_bytes(cls, body: bytes, tools: list[dict[str, Any]] | None = None, **tokens: Any) -> "Call":
        """The call whose `to_bytes` gave `body`, with its tools and tokens beside it; the tools become its own."""
        call = cls(**decode(body), **tokens)
        if tools is not None:
            force_setattr(call, "tools", _list_of_dicts(tools))
        return call


def encode_tools(tools: list[dict[str, Any]] | None) -> bytes:
    """`encode`, remembered: a run offers the same few sets of tools in all its calls."""
    try:
        return _encode_packed(msgspec.msgpack.encode(tools))
    except UnicodeEncodeError:  # a lone surrogate
        return encode(tools)


@lru_cache(maxsize=64)
def _encode_packed(tools: bytes) -> bytes:
    return encode(msgspec.msgpack.decode(tools))


def told(packed: bytes | None) -> bytes:
    """Packed tokens as part of an id: none at all is not the same as not known."""
    return b"" if packed is None else b"=" + packed


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids in the form a call keeps them."""
    return _pack("prompt_ids", ids) or b""


def pack_logprobs(logprobs: Iterable[float]) -> bytes:
    """Logprobs in the form a call keeps them."""
    return _pack("logprobs", logprobs) or b""


def unpack_ids(packed: bytes) -> "array[int]":
    """Token ids from their packed form."""
    return _unpack("i", packed)


def unpack_logprobs(packed: bytes) -> "array[float]":
    """Logprobs from their packed form."""
    return _unpack("f", packed)


def _pack(field: str, values: Iterable[Any] | None) -> bytes | None:
    if isinstance(values, bytes) and len(values) % 4:
        raise BadCall(f"{field} is packed in {len(values)} bytes, which is no whole number of four-byte values")
    if values is None or isinstance(values, bytes):
        return values
    try:
        packed = array(_TYPECODES[field], values)
    except (TypeError, ValueError, OverflowError) as problem:
        raise BadCall(
            f"{field} holds something that is no {'token id' if 'ids' in field else 'number'}: {problem}"
        ) from problem
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(typecode: str, packed: bytes) -> "array[Any]":
    values: array[Any] = array(typecode)
    values.frombytes(packed)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _plain_field(field: str, value: Any) -> Any:
    if value is None:
        return {} if dict in _SHAPES[field] else None
    try:
        made = (plain_tools if field == "tools" else plain)(value, f"call.{field}")
    except BadMessage as problem:
        raise BadCall(str(problem)) from problem
    if type(made) not in _SHAPES[field]:
        raise BadCall(f"call.{field} is a {_SHAPES[field][0].__name__}; got {value!r:.80}")
    return _list_of_dicts(made) if field == "tools" else made


def plain_tools(tools: Any, where: str = "tools") -> Any:
    """`plain`, and fast for tools that were looked at before: a run offers the same few in all its calls."""
    try:
        packed = msgspec.msgpack.encode(tools)
        made = msgspec.msgpack.decode(packed)
    except (TypeError, ValueError, OverflowError, RecursionError):  # no plain value, or a lone surrogate
        return plain(tools, where)
    # What packing changed, such as a set into a list, is unequal, and told as what it is.
    return made if made == tools and _is_plain(packed) else plain(tools, where)


@lru_cache(maxsize=64)
def _is_plain(packed: bytes) -> bool:
    try:
        plain(msgspec.msgpack.decode(packed))
    except BadMessage:
        return False
    return True


def _list_of_dicts(tools: Any) -> Any:
    if type(tools) is not list or not all(type(tool) is dict for tool in tools):
        raise BadCall(f"call.tools is a list of dicts, one for each tool; got {tools!r:.80}")
    return tools
