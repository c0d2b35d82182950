"""Promises of what a status or an error object means."""

import json
import pickle

import pytest

from stemma.models.errors import ContextTooLong, EndpointFailed, RateLimited, Refused
from stemma.models.failures import from_error_object, from_status


def failure(status: int, answer: object = None, **headers: str):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return from_status(status, named, body, now=0.0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, Refused),
        (400, Refused),
        (401, Refused),
        (403, Refused),
        (404, Refused),
        (408, EndpointFailed),
        (409, EndpointFailed),
        (425, EndpointFailed),
        (429, RateLimited),
        (500, EndpointFailed),
        (502, EndpointFailed),
        (503, EndpointFailed),
        (529, RateLimited),
    ],
)
def test_each_status_has_its_error(status, kind):
    problem = failure(status, {"error": {"message": "because"}})
    assert type(problem) is kind
    assert problem.status == status


def test_only_408_409_425_429_and_5xx_are_asked_again():
    again = {status for status in range(300, 600) if failure(status).retryable}
    assert again == {408, 409, 425, 429, *range(500, 600)}


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens",
        "the request exceeds the available context size, try increasing it",
        "Input is too long for requested model.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This endpoint's maximum context length is 131072 tokens",
        "Please reduce the length of the messages or completion.",
        "the prompt (9000 tokens) is longer than the maximum model length: max_model_len",
        "too many tokens: 5000 > 4096",
    ],
)
def test_a_context_that_does_not_fit_is_told_from_a_bad_request(message):
    assert type(failure(400, {"error": {"message": message}})) is ContextTooLong
    assert type(failure(413, {"message": message})) is ContextTooLong
    assert type(from_error_object({"message": message}, "")) is ContextTooLong
    assert type(failure(401, {"error": {"message": message}})) is Refused


def test_it_is_also_told_by_its_code():
    assert type(failure(400, {"error": {"message": "no", "code": "context_length_exceeded"}})) is ContextTooLong
    assert type(failure(400, {"error": {"message": "no", "type": "exceed_context_size_error"}})) is ContextTooLong


def test_a_used_up_quota_is_not_asked_again():
    assert type(failure(429, {"error": {"message": "pay", "code": "insufficient_quota"}})) is Refused


def test_how_long_to_wait_is_kept():
    assert failure(429, None, Retry_After="12").retry_after == 12.0
    assert failure(503, None, Retry_After="3").retry_after == 3.0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"error": {"message": "because"}}, "because"),
        ({"error": "because"}, "because"),
        ({"detail": "because"}, "because"),
        ({"message": "because"}, "because"),
        (b"<html>\n  because </html>", "<html> because </html>"),
        (b"", "no explanation"),
        (b"\xff\xfe", "��"),
        ([1], "[1]"),
        ({"error": {"code": ["odd"]}}, '{"error": {"code": ["odd"]}}'),
    ],
)
def test_the_explanation_is_found_where_each_server_puts_it(answer, said):
    assert str(failure(500, answer)) == f"the endpoint failed with 500: {said}"


def test_a_redirect_is_not_followed_and_says_where_it_goes():
    problem = failure(307, None, Location="https://elsewhere.example/v1")
    assert type(problem) is Refused
    assert "https://elsewhere.example/v1" in str(problem)


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"message": "no", "code": 429}, RateLimited, 429),
        ({"message": "no", "code": "502"}, EndpointFailed, 502),
        ({"message": "no", "code": 400}, Refused, 400),
        ({"message": "no", "code": "server_error"}, EndpointFailed, 200),
        ({"message": "no", "code": True}, EndpointFailed, 200),
        ("no", EndpointFailed, 200),
        (["no"], EndpointFailed, 200),
    ],
)
def test_an_error_in_the_place_of_a_reply_is_read_by_its_code(error, kind, status):
    problem = from_error_object(error, "body")
    assert (type(problem), problem.status) == (kind, status)


def test_errors_survive_pickling():
    problem = failure(429, {"error": {"message": "slow down"}}, Retry_After="5")
    copy = pickle.loads(pickle.dumps(problem))
    assert (type(copy), str(copy), copy.status, copy.body, copy.retry_after) == (
        RateLimited,
        str(problem),
        429,
        problem.body,
        5.0,
    )
