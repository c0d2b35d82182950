"""An event stream, read as the bytes come.

However the bytes are cut, inside a character, between CR and LF, inside a field name, the events are the same. Only
`data` matters to chat completions; comments, names and ids of events are passed over. `[DONE]` is the end mark: it
counts as soon as its line is complete, and nothing after it is read. Time is linear in the bytes: an unfinished line is
kept in pieces and joined once. `tests/models/test_sse.py` proves it against every way to cut a stream.

    >>> stream = EventStream()
    >>> stream.feed(b'data: {"a":'), stream.feed(b'1}\\r'), stream.feed(b'\\n\\r\\ndata: [DO'), stream.feed(b'NE]\\n')
    ([], [], [b'{"a":1}'], [])
    >>> stream.done
    True
"""

END_MARK = b"[DONE]"


class EventStream:
    """The events of one response."""

    def __init__(self) -> None:
        self.done = False
        """Whether the end mark has come."""
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of each event that `piece` completes."""
        second_half = self._after_cr and piece.startswith(b"\n")  # of a CRLF: it ends no further line
        self._after_cr = piece.endswith(b"\r") if piece else self._after_cr
        piece = piece[1:] if second_half else piece
        events: list[bytes] = []
        for line in self._complete_lines(piece):
            self._take(line, events)
            if self.done:
                break
        return events

    def close(self) -> None:
        """No more bytes will come: an end mark without its line break is still one."""
        self._take(b"".join(self._line), [])

    def _complete_lines(self, piece: bytes) -> list[bytes]:
        if b"\n" not in piece and b"\r" not in piece:
            self._line.append(piece)
            return []
        self._line.append(piece)
        text = b"".join(self._line)
        lines = text.splitlines()
        self._line = [] if text.endswith((b"\n", b"\r")) else [lines.pop()]
        return lines

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        elif line.startswith(b"data:"):
            data = line[6:] if line.startswith(b"data: ") else line[5:]
            if data.strip() == END_MARK:
                self.done = True
            else:
                self._data.append(data)
