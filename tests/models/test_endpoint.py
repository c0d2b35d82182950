"""Promises of addresses and credentials."""

import pytest

from stemma.models.endpoint import Endpoint
from stemma.models.errors import BadEndpoint
from stemma.models.openai_api import OpenAIModel


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000/v1/chat/completions"),
        ("https://h.example", "https://h.example/chat/completions"),
        ("https://h.example/a%20b/v1", "https://h.example/a%20b/v1/chat/completions"),
        ("https://h.example/v1?api-version=2024-06-01", "https://h.example/v1/chat/completions?api-version=2024-06-01"),
        (" https://h.example/v1\n", "https://h.example/v1/chat/completions"),
    ],
)
def test_a_base_url_ends_where_the_service_begins(base_url, url):
    assert str(Endpoint(base_url).url("chat", "completions")) == url


@pytest.mark.parametrize(
    "base_url", ["", "localhost:8000", "ftp://h/v1", "http://", "file:///etc/passwd", "http://[::1", "https://u:p@h/v1"]
)
def test_what_is_no_address_is_refused_before_anything_is_sent(base_url):
    with pytest.raises(BadEndpoint):
        Endpoint(base_url)


def test_a_url_with_credentials_is_refused_without_repeating_them():
    with pytest.raises(BadEndpoint) as caught:
        Endpoint("https://user:hunter2-hunter2@h.example/v1")
    assert "hunter2" not in str(caught.value)


def test_a_key_is_sent_without_the_line_break_of_its_file():
    assert Endpoint("http://h/v1", "sk-12345678\n").headers["Authorization"] == "Bearer sk-12345678"
    assert "Authorization" not in Endpoint("http://h/v1").headers


def test_a_header_that_is_given_replaces_ours_however_it_is_written():
    headers = Endpoint("http://h/v1", "sk-12345678", {"authorization": "Token abc", "USER-AGENT": "me"}).headers
    assert headers == {"Content-Type": "application/json", "authorization": "Token abc", "USER-AGENT": "me"}


def test_a_model_needs_a_name():
    with pytest.raises(BadEndpoint):
        OpenAIModel("", "http://h/v1")


def test_a_key_that_http_cannot_carry_is_refused_without_repeating_it():
    with pytest.raises(BadEndpoint) as caught:
        Endpoint("http://h/v1", "sk-1234\r\nX-Evil: 5678")
    assert "1234" not in str(caught.value)


def test_secrets_are_the_key_and_what_is_named_like_one():
    endpoint = Endpoint(
        "https://h/v1?api-version=2024-06-01&api_key=abcdefgh1",
        "sk-12345678",
        {"X-Api-Key": "abcdefgh2", "Authorization": "Token abcdefgh3", "X-Title": "my research"},
    )
    text = "sk-12345678 abcdefgh1 abcdefgh2 abcdefgh3 2024-06-01 my research"
    assert endpoint.redactor.text(text) == "[secret] [secret] [secret] [secret] 2024-06-01 my research"


def test_a_model_shows_its_name_and_place_but_not_its_key():
    shown = repr(OpenAIModel("m", "https://h/v1?api_key=abcdefgh1", "sk-12345678"))
    assert shown == "OpenAIModel('m', 'https://h/v1?api_key=[secret]')"
