"""Promises of reading and writing JSON at the endpoint's side."""

from math import isnan

import pytest

from stemma.models.errors import BrokenReply
from stemma.models.jsontext import json_or_none, read_json, write_json


def test_a_lone_surrogate_goes_out_and_comes_in():
    assert read_json(write_json({"a": "x\ud800"})) == {"a": "x\ud800"}
    assert write_json("\ud800") == b'"\\ud800"'


def test_nan_is_read_for_the_logprobs_that_hold_it():
    assert isnan(read_json(b'{"logprob": NaN}')["logprob"])


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"a":1}x', b'"\xff"', b"<html>", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000, b'"\xed\xa0\x80"'],
)
def test_what_is_no_json_is_a_broken_reply(text):
    with pytest.raises(BrokenReply):
        read_json(text)
    assert json_or_none(text) is None
