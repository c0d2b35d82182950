"""Promises of the replacement of secrets, in every form in which a program shows one."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.redact import MASK, Redactor

KEY = 'sk-"odd\\käy/with+all'


@pytest.mark.parametrize(
    "form", [KEY.encode().hex(), KEY.encode().hex().upper(), json.dumps(KEY)[1:-1], quote(KEY, "")]
)
def test_every_form_in_which_a_program_shows_it_goes(form):
    assert Redactor([KEY]).text(f"before {form} after {form}") == f"before {MASK} after {MASK}"


@given(st.binary(max_size=9), st.text(min_size=8, max_size=20), st.binary(max_size=9), st.booleans())
def test_a_secret_inside_an_encoded_text_goes_wherever_it_stands(before, secret, after, in_url):
    encode = base64.urlsafe_b64encode if in_url else base64.b64encode
    text = encode(before + secret.encode("utf-8", "surrogatepass") + after).decode()
    clean = Redactor([secret]).text(text)
    assert MASK in clean
    assert len(clean.replace(MASK, "")) <= len(text) - len(secret)


@given(st.text(alphabet="abc ", max_size=200))
def test_text_without_a_secret_stays_as_it_is(text):
    assert Redactor([KEY]).text(text) == text
