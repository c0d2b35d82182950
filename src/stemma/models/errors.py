"""What can go wrong between a question and its answer; each says whether asking again may help.

ModelError (StemmaError)
├── Unreachable       no connection, or it broke before a whole reply
├── TooSlow           a deadline passed: connect, first byte, between bytes, or total
├── RateLimited       429 and its kin; `retry_after` in seconds if the endpoint said
├── EndpointFailed    5xx, and 408, 409 and 425
├── Refused           4xx that asking again will not change: bad request, key, permission, content policy
│   └── ContextTooLong   the context does not fit; compaction may help
├── BrokenReply       200, but not a whole well-formed reply
│   └── ReplyTooLarge    it went on past the size that is taken; asking again would only cost as much again
└── NoMoreReplies     a script or a recording has no answer for this context

BadEndpoint (StemmaError, ValueError)   a base URL, key or setting that cannot be used; nothing was sent
"""

from stemma.errors import StemmaError

MOST_BODY = 2**16
"""How many characters of a body an error takes; `models/redact.py` cuts it further once no secret is in it."""


class ModelError(StemmaError):
    """A reply that did not come."""

    retryable = False

    def __init__(
        self, message: str, *, status: int | None = None, body: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.body, self.retry_after = status, body[:MOST_BODY], retry_after


class Unreachable(ModelError):
    """No connection, or it broke before a whole reply."""

    retryable = True


class TooSlow(ModelError):
    """A deadline passed."""

    retryable = True


class RateLimited(ModelError):
    """429 and its kin."""

    retryable = True


class EndpointFailed(ModelError):
    """5xx, and 408, 409 and 425."""

    retryable = True


class Refused(ModelError):
    """4xx that asking again will not change."""


class ContextTooLong(Refused):
    """The context does not fit the model's window."""


class BrokenReply(ModelError):
    """200, but not a whole well-formed reply."""

    retryable = True


class ReplyTooLarge(BrokenReply):
    """A reply that goes on past the size that is taken."""

    retryable = False


class NoMoreReplies(ModelError):
    """A script or a recording has no answer for this context."""


class BadEndpoint(StemmaError, ValueError):
    """A base URL, key or setting that cannot be used."""
