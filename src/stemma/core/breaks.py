"""Breaks: where a prompt does not go on from what the call before it in the conversation saw and sampled, and why.

Tokens decide whether there is a break; messages say why:

    resample            the prompt is only a beginning of it: the same context, asked again or gone back to
    edit, compaction …  the reply no longer stands in the context: the reason its line was left for
    tools changed       the line goes on, with other tools offered
    thinking stripped   the line goes on; the first reply that reads differently now had reasoning
    re-tokenised        the line goes on; the same text is written in other tokens

    was   1 2 [3 4] 5     was 4, now 9, at 3: a reply was written in other tokens
    now   1 2  3 9  5 6

`tests/core/test_breaks.py` proves it.
"""

from collections.abc import Sequence

import msgspec

from stemma.core.call import encode_tools, unpack_ids
from stemma.core.token_calls import Captured
from stemma.core.token_trie import WIDTH, shared


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """One break."""

    call: int
    """Which call's prompt does not go on."""
    previous: int
    """From which call's."""
    cause: str
    at: int
    """How many tokens they share."""
    was: int | None
    """The first token that differs, as it was; None if there was none at this place."""
    now: int | None


def breaks(calls: Sequence[Captured]) -> list[Break]:
    """The breaks among calls that have their tokens; the others say nothing."""
    found = []
    for number, one in enumerate(calls):
        earlier = None if one.previous is None else calls[one.previous]
        if earlier is not None and one.previous is not None and _known(one) and _known(earlier):
            said, prompt = _full(earlier), one.call.prompt_ids or b""
            if not prompt.startswith(said):
                found.append(_break(calls, number, one.previous, said, prompt))
    return found


def _known(one: Captured) -> bool:
    return one.call.prompt_ids is not None and one.call.sampled_ids is not None


def _full(one: Captured) -> bytes:
    return (one.call.prompt_ids or b"") + (one.call.sampled_ids or b"")


def _break(calls: Sequence[Captured], number: int, previous: int, said: bytes, prompt: bytes) -> Break:
    length = shared(prompt, said)
    return Break(
        call=number,
        previous=previous,
        cause="resample" if length == len(prompt) else _cause(calls, number, previous, length),
        at=length // WIDTH,
        was=_id_at(said, length),
        now=_id_at(prompt, length),
    )


def _cause(calls: Sequence[Captured], number: int, previous: int, length: int) -> str:
    one, earlier = calls[number], calls[previous]
    if one.left is not None:
        return one.left
    if encode_tools(one.call.tools) != encode_tools(earlier.call.tools):
        return "tools changed"
    return "thinking stripped" if calls[_first_different(calls, previous, length)].thought else "re-tokenised"


def _first_different(calls: Sequence[Captured], number: int, length: int) -> int:
    """The earliest call on the way to `number` whose reply ends after the first `length` bytes."""
    above = calls[number].before
    while above is not None and len(_full(calls[above])) > length:
        number, above = above, calls[above].before
    return number


def _id_at(ids: bytes, place: int) -> int | None:
    return unpack_ids(ids[place : place + WIDTH])[0] if place < len(ids) else None
