"""The head and the tail of a stream, however long it is; what lies between is counted, not kept.

    Kept(10) after "0123456789ABCDEF"  →  "01234", "… [6 characters left out] …", "BCDEF"

Secrets are replaced as the bytes come, before anything is left out: no part of one is seen at a cut.
`tests/tools/test_terminal.py` proves it.
"""

from codecs import getincrementaldecoder

from stemma.redact import NOTHING_SECRET, Redactor


class Kept:
    """What is shown of an output."""

    def __init__(self, most: int, redactor: Redactor = NOTHING_SECRET) -> None:
        self._half = most // 2
        self._redacted = redactor.stream() if redactor.secrets else None
        self._decoder = getincrementaldecoder("utf-8")("surrogateescape")
        self.clear()

    def clear(self) -> None:
        """Forget what has come; what may be the beginning of a secret is still held back."""
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, block: bytes) -> None:
        """Take in what has come."""
        if self._redacted is None:
            self._take(block)
        else:
            self._take(self._redacted.feed(self._decoder.decode(block)).encode("utf-8", "surrogateescape"))

    def end(self) -> None:
        """Nothing more comes, and nothing is held back any longer."""
        if self._redacted is not None:
            last = self._redacted.feed(self._decoder.decode(b"", final=True)) + self._redacted.end()
            self._take(last.encode("utf-8", "surrogateescape"))

    def text(self) -> tuple[str, int]:
        """What is shown of it, and how many characters are not."""
        if self._total == len(self._head) + len(self._tail):
            whole = (self._head + self._tail).decode("utf-8", "replace")
            if len(whole) <= self._half * 2:
                return whole, 0
        head = self._head.decode("utf-8", "replace")[: self._half]
        tail = (self._tail or self._head).decode("utf-8", "replace")[-self._half :]
        cut = max(self._total - len(head.encode()) - len(tail.encode()), 1)
        return f"{head}\n… [{cut} characters left out] …\n{tail}", cut

    def _take(self, block: bytes) -> None:
        self._total += len(block)
        room = self._half * 4 - len(self._head)  # bytes; a character has at most four
        self._head += block[:room] if room > 0 else b""
        self._tail += block[max(room, 0) :]
        if len(self._tail) > self._half * 8:
            del self._tail[: -self._half * 4]
