"""How a prompt lies on disk: as what it adds to an earlier call, so that each token is kept once.

A prompt is the first `shared` ids of what an earlier call of the same conversation saw and sampled, and then its own:

    call 1   prompt 1 2 3          sampled 4 5
    call 2   base 1, shared 5,     own 6 7        prompt 1 2 3 4 5 6 7
    call 3   base 2, shared 2,     own 9 4 5      prompt 1 2 9 4 5          (the third message was edited)

A base always stands in an earlier row, so there are no circles. `tests/store/test_prompts.py` proves it.
"""

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from stemma.core.token_trie import WIDTH, shared
from stemma.errors import StoreDamaged
from stemma.store.narrow import narrow, widen

_WORTH = 16
"""A beginning of fewer ids is written again rather than referred to."""
_KEPT_BYTES = 64 << 20
"""How much of what was read stays at hand for prompts that build on it."""


class Seen(NamedTuple):
    """What a call saw and sampled, packed."""

    prompt: bytes
    sampled: bytes

    def beginning(self, length: int) -> bytes:
        """Its first `length` bytes."""
        if not 0 <= length <= len(self.prompt) + len(self.sampled):
            raise StoreDamaged("a prompt keeps more of an earlier call than that has; `stemma verify` names it")
        if length <= len(self.prompt):
            return self.prompt[:length]
        return self.prompt + self.sampled[: length - len(self.prompt)]


class Stored(NamedTuple):
    """The columns of a prompt."""

    base: int | None
    shared: int
    own: bytes | None
    """As `narrow` writes ids."""


def shortened(prompt: bytes | None, earlier: Iterable[tuple[int, Seen]]) -> Stored:
    """A prompt as its row has it; `earlier` are rows of calls it may build on, the likeliest first."""
    base, kept = None, _WORTH * WIDTH - 1
    for row, seen in earlier if prompt else ():
        length = _shared(prompt or b"", seen)
        if length > kept:
            base, kept = row, length
        if length == len(seen.prompt) + len(seen.sampled):  # it goes on from there: none before has more of it
            break
    if base is None:
        return Stored(None, 0, narrow(prompt))
    return Stored(base, kept // WIDTH, narrow((prompt or b"")[kept:]))


def _shared(prompt: bytes, seen: Seen) -> int:
    if not prompt.startswith(seen.prompt):
        return shared(prompt, seen.prompt)
    length = len(seen.prompt)
    return length + shared(prompt[length : length + len(seen.sampled)], seen.sampled)


class PromptReader:
    """Puts prompts together again; what was read last stays at hand."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[int, Seen] = {}
        self._size = 0

    def read(self, row: int, stored: Stored, sampled: bytes | None) -> bytes | None:
        """The prompt of the call in `row`, which sampled `sampled`."""
        prompt = widen(stored.own)
        if stored.base is None:
            if stored.shared != 0:
                raise StoreDamaged(f"the prompt of call {row} keeps a part of no call; `stemma verify` names it")
        elif stored.base >= row or prompt is None:
            raise StoreDamaged(f"the prompt of call {row} builds on no earlier one; `stemma verify` names it")
        else:
            prompt = self._seen(stored.base).beginning(stored.shared * WIDTH) + prompt
        self._keep(row, Seen(prompt or b"", sampled or b""))
        return prompt

    def _seen(self, row: int) -> Seen:
        """What the call in `row` saw and sampled, put together from the calls it builds on."""
        waiting = []
        while row not in self._known:
            found = self._db.execute(
                "SELECT prompt_base, prompt_shared, prompt_ids, sampled_ids FROM call WHERE id = ?", (row,)
            ).fetchone()
            if found is None:
                raise StoreDamaged(f"call {row}, on whose prompt others build, is missing; `stemma verify` names them")
            waiting.append((row, Stored(*found[:3]), widen(found[3])))
            base = found[0]
            if base is None or base >= row:
                break
            row = base
        last = row
        for last, stored, sampled in reversed(waiting):
            self.read(last, stored, sampled)
        return self._known[last]

    def _keep(self, row: int, seen: Seen) -> None:
        self._known[row] = seen
        self._size += len(seen.prompt)
        while self._size > _KEPT_BYTES and len(self._known) > 2:
            oldest = next(iter(self._known))
            self._size -= len(self._known.pop(oldest).prompt)
