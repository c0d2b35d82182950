"""Promises of what is secret, and of its replacement in every form in which a program shows it."""

import base64
import doctest
import json
from html import escape
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import stemma.redact
from stemma.redact import (
    MASK,
    PLACEHOLDERS,
    Redactor,
    environment_secrets,
    names_a_secret,
    secrets_in,
    without_secrets,
)

KEY = 'sk-"odd\\käy/with+all'
LETTERS = st.text('01é\\"&', max_size=30)
SECRET = st.text('01é\\"&', min_size=8, max_size=12).map(str.strip)


def test_the_examples_are_true():
    assert doctest.testmod(stemma.redact).failed == 0


# ── which values are secret ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "X-Api-Key",
        "api-key",
        "X-Password",
        "x-auth-token",
        "Cookie",
        "Set-Cookie",
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
        "apikey",
        "apiKey",
        "authToken",
        "clientSecret",
        "DB_PASSWORD",
        "PGPASSWORD",
        "DB_PWD",
        "X-Subscription-Token",
        "Proxy-Authorization",
        "credentials",
        "GITHUB_PAT",
        "X-Amz-Signature",
        "sig",
        "accesskey",
        "--api-key",
        "-token",
    ],
)
def test_names_that_mean_secret(name):
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "GIT_AUTHOR_NAME",
        "KEYBOARD",
        "tokenizer",
        "TOKENIZERS_PARALLELISM",
        "monkey",
        "api_key_env",
        "prompt_cache_key",
        "Content-Type",
        "User-Agent",
        "passenger",
        "compass",
        "signal",
        "authority_less",
        "X-Title",
    ],
)
def test_names_that_only_look_like_it(name):
    assert not names_a_secret(name)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"X-Whatever": "Bearer abcdefgh"}, {"Bearer abcdefgh", "abcdefgh"}),
        ({"Authorization": "Basic " + base64.b64encode(b"me:pass word").decode()}, {"pass word"}),
        ({"url": "https://me:p%40ss@example.org/v1?api-version=3&api_key=a%2Fb"}, {"p%40ss", "p@ss", "a%2Fb", "a/b"}),
        ({"url": "https://tokenalone@example.org"}, {"tokenalone"}),
        ({"proxy": "me:password@example.org:8080"}, {"password"}),
        ({"X-Team": "8f14e45fceea167a5a36dedd4bea2543"}, {"8f14e45fceea167a5a36dedd4bea2543"}),
        ({"auth": {"nested": [{"api_key": "deep"}]}}, {"deep"}),
        (["--token", "one", "--api-key=two", "--url", "https://a:three@b"], {"one", "two", "three"}),
    ],
)
def test_secrets_are_found_wherever_a_config_can_hold_them(config, found):
    assert found <= set(secrets_in(config, opaque=True))


@pytest.mark.parametrize(
    "config",
    [
        {"Authorization": "Bearer hunter2"},
        {"url": "https://me:hunter2@example.org/v1?api_key=hunter2"},
        {"url": "https//me:hunter2@example.org"},
        {"deep": [{"api_key": "hunter2"}]},
        ["--token", "hunter2", "--secret=hunter2", "--url=https://a:hunter2@b", "api_key=hunter2"],
    ],
)
def test_a_config_is_shown_without_them(config):
    shown = json.dumps(without_secrets(config))
    assert MASK in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "config",
    [
        {"temperature": 0.5, "max_tokens": 100, "stop": ["</s>"], "stop_token": "<|im_end|>"},
        {"X-Title": "stemma", "HTTP-Referer": "https://example.org/?page=2", "LANG": "C.UTF-8"},
        {"base_url": "https://example.org/v1?api-version=2024-10-21-preview"},
        {"KEY_FILE": "/home/me/key.pem", "MODEL": "qwen2-5-coder-32b-instruct", "AUTH_URL": "https://example.org/in"},
        {"url": "https://example.org/v1?deployment=gpt4turbo20240409v2", "X-Model": "gpt4turbo20240409v2"},
        ["serve", "--port", "80", "me@example.org"],
    ],
)
def test_what_is_no_secret_stays(config):
    assert secrets_in(config, opaque=True) == []
    assert without_secrets(config) == config


def test_of_the_environment_only_names_and_addresses_count():
    environ = {
        "SSH_AUTH_SOCK": "/tmp/agent.1",
        "PWD": "/home/me",
        "GIT_SHA": "8f14e45fceea167a5a36dedd4bea2543",
        "GITHUB_TOKEN": "ghp_1",
        "POSTGRES_PASSWORD": "postgres",
        "AUTH_TIMEOUT": "3600.000",
        "PIP_INDEX_URL": "https://me:letmein@example.org/simple",
    }
    assert environment_secrets(environ) == ["ghp_1", "letmein"]


# ── how they go ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        repr(KEY)[1:-1],
        quote(KEY, ""),
        quote(KEY),
        escape(KEY),
        base64.b64encode(KEY.encode()).decode(),
    ],
)
def test_every_form_in_which_a_program_shows_it_goes(form):
    assert Redactor([KEY]).text(f"before {form} after {form}") == f"before {MASK} after {MASK}"


@given(st.binary(max_size=9), st.text(min_size=8, max_size=20), st.binary(max_size=9), st.booleans())
def test_a_secret_inside_an_encoded_text_goes_wherever_it_is(before, secret, after, in_url):
    secret = secret.strip()
    assume(len(secret) >= 8 and secret not in PLACEHOLDERS)
    encode = base64.urlsafe_b64encode if in_url else base64.b64encode
    text = encode(before + secret.encode("utf-8", "surrogatepass") + after).decode()
    clean = Redactor([secret]).text(text)
    assert MASK in clean
    assert len(clean.replace(MASK, "")) <= len(text) - len(secret)


@given(st.text(alphabet="abc ", max_size=200))
def test_text_without_a_secret_stays_as_it_is(text):
    assert Redactor([KEY]).text(text) == text


@given(SECRET, LETTERS, LETTERS)
def test_no_secret_survives(secret, before, after):
    assume(len(secret) >= 8)
    assert secret not in Redactor([secret]).text(before + secret + after)


def test_a_value_is_cleaned_at_any_depth_and_its_keys_too():
    value = {"a": [{"b": f"x{KEY}"}, 1, None], f"{KEY}": True}
    assert Redactor([KEY]).value(value) == {"a": [{"b": f"x{MASK}"}, 1, None], MASK: True}
    assert value["a"][0]["b"] == f"x{KEY}"


def test_a_value_without_a_secret_is_the_same_object():
    value = {"a": [{"b": "x"}], "c": 1.5}
    assert Redactor([KEY]).value(value) is value
    assert Redactor([]).value(value) is value


@pytest.mark.parametrize("placeholder", ["", "x", "EMPTY", "none", "ollama", "not-needed", "sk-no-key-required"])
def test_a_placeholder_is_a_word_like_any_other(placeholder):
    text = f"this is {placeholder} and {placeholder}"
    assert Redactor([placeholder]).text(text) == text


def test_a_key_of_many_lines_goes_line_by_line():
    key = "-----BEGIN KEY-----\nAAAAAAAAAAAA1\nBBBBBBBBBBBB2\n-----END KEY-----\n"
    shown = "".join(f"{number}\t{line}" for number, line in enumerate(key.splitlines(keepends=True), 1))
    assert "AAAA" not in Redactor([key]).text(shown)
    assert "BBBB" not in Redactor([key]).text(shown)


# ── cuts and pieces ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("most", range(1, 60, 7))
def test_no_cut_leaves_a_part_of_a_secret(most):
    key = "Zx81Qw92Er73Ty64Ui55Op46As37Df28"
    redactor = Redactor([key])
    for before in range(60):
        text = "." * before + key + "." * 40
        for raw in range(most + 1, len(text) + 1):
            assert set(redactor.start(text[:raw], most)) <= set("." + MASK)


@given(st.lists(SECRET, max_size=3), st.lists(LETTERS, max_size=5), st.lists(st.integers(0, 9), min_size=1))
def test_however_a_text_is_cut_into_pieces_they_are_the_whole_redacted(secrets, texts, lengths):
    whole = "".join(part for pair in zip(texts, [*secrets, *[""] * 5], strict=False) for part in pair)
    stream = Redactor(secrets).stream()
    said, at = [], 0
    while at < len(whole):
        for length in lengths:
            said.append(stream.feed(whole[at : at + length + 1]))
            at += length + 1
    assert "".join([*said, stream.end()]) == Redactor(secrets).text(whole)


def test_only_what_may_be_a_secret_is_held_back():
    stream = Redactor(["sk-12345678"]).stream()
    assert [stream.feed(piece) for piece in ("no s", "ugar, sk-1234", "5678!", " s")] == [
        "no ", "sugar, ", f"{MASK}!", " "
    ]  # fmt: skip
    assert stream.end() == "s"


@pytest.mark.parametrize(
    "shown",
    [
        r"wJal\/K7+MD\/x=9\"z",
        json.dumps(json.dumps({"key": 'wJal/K7+MD/x=9"z'})),
        "https://example.org/?key=wJal%2fK7%2bMD%2fx%3d9%22z",
    ],
    ids=["JSON with escaped slashes", "JSON in JSON", "a URL in lower case"],
)
def test_forms_that_other_languages_write(shown):
    assert "wJal" not in Redactor(['wJal/K7+MD/x=9"z']).text(shown)
