"""The two kinds of body a chat completion comes in: one JSON object, or a stream of events.

`receiver` chooses by what the endpoint says it sends, and by what was asked for where it does not say: some ignore
`stream`, some know nothing else. `tests/models/test_openai_api.py` proves it.
"""

from typing import Any

from stemma.models.assemble import Assembly
from stemma.models.errors import BrokenReply
from stemma.models.jsontext import read_json
from stemma.models.protocol import OnDelta
from stemma.models.sse import EventStream


class JsonBody:
    """One JSON object."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._payload: Any = None

    def feed(self, piece: bytes) -> bool:
        self._pieces.append(piece)
        return False

    def close(self) -> None:
        self._payload = read_json(b"".join(self._pieces))

    def payload(self) -> Any:
        """What came."""
        return self._payload


class EventBody:
    """A stream of events that ends with its end mark."""

    def __init__(self, on_delta: OnDelta | None = None) -> None:
        self._stream, self._assembly = EventStream(), Assembly(on_delta)

    def feed(self, piece: bytes) -> bool:
        for event in self._stream.feed(piece):
            self._assembly.add(event)
        return self._stream.done

    def close(self) -> None:
        self._stream.close()
        if not self._stream.done:
            raise BrokenReply("the stream ended without its end mark", status=200)

    def payload(self) -> Any:
        """What came, put together."""
        return self._assembly.payload()


class Receiver:
    """Who takes the body of one answer."""

    def __init__(self, *, streamed: bool, on_delta: OnDelta | None = None) -> None:
        self._streamed, self._on_delta = streamed, on_delta
        self._body: JsonBody | EventBody = JsonBody()

    def __call__(self, content_type: str) -> JsonBody | EventBody:
        events = content_type == "text/event-stream" or (self._streamed and content_type != "application/json")
        self._body = EventBody(self._on_delta) if events else JsonBody()
        return self._body

    def payload(self) -> Any:
        """The completion, however it came."""
        return self._body.payload()
