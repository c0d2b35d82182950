"""What comes from a model without the secrets in it: errors, whole replies, and pieces while they stream.

A reply that held a secret is recorded with the secret replaced, so neither store nor export has it. It is then not what
the model sampled, so nothing is trained on it: its token ids are dropped, and its call says so:

    extra["redacted"]    True: the reply held a secret of ours, which was replaced
    extra["trainable"]   False: what is recorded is not what was sampled

`stemma/redact.py` says what is replaced. `tests/models/test_redact.py` proves it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from stemma.models.errors import ModelError
from stemma.models.protocol import Delta, OnDelta, Reply
from stemma.redact import RedactedStream, Redactor

BODY = 2_000
"""How many characters of a body an error keeps."""
MESSAGE = 500
"""How many characters its message has at most."""


@contextmanager
def redacted_errors(redactor: Redactor) -> Iterator[None]:
    """Cleans every `ModelError` that leaves the block, where it stands; only then it is cut to what is read."""
    try:
        yield
    except ModelError as problem:
        problem.args = tuple(_message(redactor, argument) for argument in problem.args)
        problem.body = redactor.start(problem.body, BODY)
        raise


def _message(redactor: Redactor, argument: object) -> object:
    if not isinstance(argument, str):
        return argument
    said = redactor.start(argument, MESSAGE)
    return said if len(argument) <= MESSAGE else f"{said}…"


def redacted_reply(reply: Reply, redactor: Redactor) -> Reply:
    """The reply without secrets; the very same if there was none in it."""
    call, message = reply.call, redactor.value(reply.message)
    said = {"model": call.model, "id": call.id, "finish_reason": call.finish_reason, "usage": call.usage}
    said |= {"params": call.params, "extra": call.extra}
    clean = redactor.value(said)
    if message is not reply.message:
        why = "the reply held a secret, and its tokens would spell it"
        clean = {**clean, "extra": {**clean["extra"], "redacted": True, "trainable": False, "tokens": why}}
        clean["extra"].pop("logprobs", None)
        clean |= {"prompt_ids": None, "sampled_ids": None, "logprobs": None}
    if clean is said:
        return reply
    return Reply(message=message, call=msgspec.structs.replace(call, **clean))


class RedactedDeltas:
    """Shows the pieces of a reply without secrets, also one that comes in several pieces."""

    def __init__(self, on_delta: OnDelta, redactor: Redactor) -> None:
        self._on_delta, self._redactor = on_delta, redactor
        self._kind: str | None = None
        self._stream: RedactedStream = redactor.stream()

    def __call__(self, delta: Delta) -> None:
        if delta.kind == "again":
            self._kind, self._stream = None, self._redactor.stream()
            self._on_delta(Delta("again", self._redactor.text(delta.text)))
            return
        if delta.kind != self._kind:
            self.end()
            self._kind = delta.kind
        self._show(self._stream.feed(delta.text))

    def end(self) -> None:
        """Nothing more of this kind comes."""
        self._show(self._stream.end())

    def _show(self, text: str) -> None:
        if text:
            self._on_delta(Delta(self._kind, text))  # type: ignore[arg-type]  # text comes only after a kind
