"""Promises of the event stream: the same events however the bytes are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.models.sse import EventStream

STREAM = (
    b": a comment\n"
    b'data: {"a": "Gr\xc3\xbc\xc3\x9fe"}\n'
    b"\n"
    b"event: delta\n"
    b"id: 7\n"
    b"data:no space\n"
    b"data: and a second line\n"
    b"\n"
    b"retry: 3\n"
    b"\n"
    b"\n"
    b"data: \xe2\x80\xa8 is no line break, nor are \x0b and \x0c\n"
    b"\n"
    b"data: [DONE]\n"
    b"\n"
)
EVENTS = [
    b'{"a": "Gr\xc3\xbc\xc3\x9fe"}',
    b"no space\nand a second line",
    b"\xe2\x80\xa8 is no line break, nor are \x0b and \x0c",
]


def read(pieces: list[bytes]) -> tuple[list[bytes], bool]:
    stream = EventStream()
    events = [event for piece in pieces for event in stream.feed(piece)]
    stream.close()
    return events, stream.done


@pytest.mark.parametrize("line_break", [b"\n", b"\r\n", b"\r"])
def test_every_single_cut_gives_the_same_events(line_break):
    stream = STREAM.replace(b"\n", line_break)
    for at in range(len(stream) + 1):
        assert read([stream[:at], stream[at:]]) == (EVENTS, True)
    assert read([bytes([one]) for one in stream]) == (EVENTS, True)


@given(st.lists(st.integers(0, 300)), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_cuts_give_the_same_events(cuts, line_break):
    stream = STREAM.replace(b"\n", line_break)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    assert read([stream[a:b] for a, b in itertools.pairwise(edges)]) == (EVENTS, True)


@pytest.mark.parametrize("end", range(len(STREAM) - len(b"data: [DONE]\n\n")))
def test_a_stream_that_is_cut_anywhere_before_its_end_mark_is_not_done(end):
    events, done = read([STREAM[:end]])
    assert not done
    assert events == EVENTS[: len(events)]


def test_an_end_mark_counts_without_its_blank_line_and_without_its_line_break():
    assert read([b"data: [DONE]\n"]) == ([], True)
    assert read([b"data: [DONE]"]) == ([], True)
    assert read([b"data:[DONE]\r"]) == ([], True)
    assert read([b"data: [DONE"]) == ([], False)


def test_nothing_after_the_end_mark_is_read():
    assert read([b"data: 1\n\ndata: [DONE]\n\ndata: 2\n\n"]) == ([b"1"], True)


def test_an_event_without_its_blank_line_is_not_complete():
    assert read([b"data: 1\n\ndata: 2\n"]) == ([b"1"], False)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_any_bytes_are_read_without_an_error(pieces):
    read(pieces)
