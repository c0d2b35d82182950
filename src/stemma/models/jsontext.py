"""JSON as endpoints write it, and as they can read it.

Reading takes what servers really send: a lone surrogate written as an escape, and `NaN` among the logprobs (only the
logprobs may hold it: a message or a call that does is refused later). What is no JSON, is no UTF-8, or is nested too
deep to read is a `BrokenReply`. Writing takes any `str` that Python can hold. `tests/models/test_jsontext.py` proves
it.
"""

import json
from typing import Any

import msgspec

from stemma.models.errors import MOST_BODY, BrokenReply

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def read_json(text: bytes, what: str = "the reply") -> Any:
    """The value, or `BrokenReply`."""
    try:
        return _decode(text)
    except RecursionError:
        problem = "is nested too deep to read"
    except ValueError:
        try:
            return json.loads(text.decode("utf-8"))
        except RecursionError:
            problem = "is nested too deep to read"
        except ValueError as trouble:
            problem = f"is not JSON ({trouble})"
    raise BrokenReply(f"{what} {problem}", status=200, body=text[:MOST_BODY].decode("utf-8", "replace"))


def json_or_none(text: bytes) -> Any:
    """The value, or None if there is none to read."""
    try:
        return read_json(text)
    except BrokenReply:
        return None


def write_json(value: Any) -> bytes:
    """The value as an endpoint can read it."""
    try:
        return _encode(value)
    except UnicodeEncodeError:  # a lone surrogate: JSON can say it only as an escape
        return json.dumps(value, separators=(",", ":"), default=_unraw).encode("ascii")


def _unraw(value: Any) -> Any:
    """What was written as JSON before, as a value."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"{type(value).__name__} is no JSON value")
