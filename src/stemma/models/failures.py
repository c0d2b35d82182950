"""What a status, or an error object in the place of a reply, means as one of our errors.

    429, 529                      RateLimited      but a used-up quota is Refused: waiting does not fill it
    408, 409, 425, 5xx            EndpointFailed
    3xx                           Refused          credentials do not follow a redirect
    4xx that says "context …"     ContextTooLong
    any other                     Refused
    an error object in a 200      by its `code` if that is a status, else EndpointFailed

The texts here may hold what the endpoint echoed, and are as long as it made them: `redact.redacted_errors` takes the
secrets out and only then cuts them, before anybody sees them.
`tests/models/test_failures.py` proves it.
"""

import re
from collections.abc import Mapping
from typing import Any

from stemma.models.errors import MOST_BODY, ContextTooLong, EndpointFailed, ModelError, RateLimited, Refused
from stemma.models.jsontext import json_or_none
from stemma.models.retry import retry_after

TRY_AGAIN = frozenset({408, 409, 425})
OVERLOADED = frozenset({429, 529})
SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|maximum context|max(?:imum)?[_ ]model[_ ]len|prompt is too long"
    r"|input is too long|too many (?:input |prompt )?tokens|reduce the length|exceed_context_size",
    re.IGNORECASE,
)


def from_status(status: int, headers: Mapping[str, str], body: bytes, now: float) -> ModelError:
    """The error that an HTTP answer other than 2xx is."""
    text = body.decode("utf-8", "replace")
    error = _error_of(json_or_none(body))
    said = _message_of(error) or _first_line(text)
    if 300 <= status < 400:
        where = headers.get("Location", "somewhere it does not name")
        return Refused(
            f"the endpoint redirects to {where}; credentials do not follow, so set that as base_url", status=status
        )
    return _classify(status, said, error, text, retry_after(headers, now))


def from_error_object(error: Any, body: str) -> ModelError:
    """The error that stands in the place of a reply although the status was 200."""
    said = _message_of(error) or "an error without a message"
    code = error.get("code") if isinstance(error, Mapping) else None
    status = int(code) if isinstance(code, int | str) and re.fullmatch(r"[45]\d\d", str(code)) else None
    if status is not None:
        return _classify(status, said, error, body, None)
    if _is_about_length(said, error):
        return ContextTooLong(f"the context does not fit: {said}", status=200, body=body)
    return EndpointFailed(f"the endpoint said in place of a reply: {said}", status=200, body=body)


def _classify(status: int, said: str, error: Any, body: str, wait: float | None) -> ModelError:
    if status in OVERLOADED and not _mentions(error, SPENT):
        return RateLimited(f"{status}, too many requests: {said}", status=status, body=body, retry_after=wait)
    if status in TRY_AGAIN or status >= 500:
        return EndpointFailed(f"the endpoint failed with {status}: {said}", status=status, body=body, retry_after=wait)
    if status in (400, 413, 422) and _is_about_length(said, error):
        return ContextTooLong(f"the context does not fit ({status}): {said}", status=status, body=body)
    return Refused(f"the endpoint refused with {status}: {said}", status=status, body=body)


def _is_about_length(said: str, error: Any) -> bool:
    return _mentions(error, {"context_length_exceeded", "exceed_context_size_error"}) or bool(_TOO_LONG.search(said))


def _mentions(error: Any, names: set[str] | frozenset[str]) -> bool:
    said = [error.get("code"), error.get("type")] if isinstance(error, Mapping) else []
    return any(isinstance(name, str) and name in names for name in said)


def _error_of(answer: Any) -> Any:
    """The part of an answer that tells what went wrong: each server family has its own place for it."""
    if not isinstance(answer, Mapping):
        return None
    return answer.get("error") or answer


def _message_of(error: Any) -> str:
    if isinstance(error, str):
        return _first_line(error)
    if isinstance(error, Mapping):
        for key in ("message", "detail", "error", "msg"):
            if isinstance(error.get(key), str) and error[key]:
                return _first_line(error[key])
    return ""


def _first_line(text: str) -> str:
    """The text in one line. Of one that is too long the last word goes: half a secret would not be recognised."""
    words = text[:MOST_BODY].split()
    if len(text) >= MOST_BODY and words != [text[:MOST_BODY]]:
        words = words[:-1]
    return " ".join(words) or "no explanation"
