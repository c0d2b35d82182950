"""Promises of keeping secrets out of what is shown and kept."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.models.errors import Refused
from stemma.models.redact import BODY, Redactor
from stemma.redact import MASK

KEY = 'sk-"odd\\käy/with+all'


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        quote(KEY, safe=""),
        base64.b64encode(KEY.encode()).decode(),
    ],
)
def test_every_form_in_which_an_endpoint_may_echo_it_goes(form):
    assert Redactor([KEY]).text(f"before {form} after {form}") == f"before {MASK} after {MASK}"


def test_a_value_is_cleaned_at_any_depth_and_its_keys_too():
    redact = Redactor([KEY])
    value = {"a": [{"b": f"x{KEY}"}, 1, None], f"{KEY}": True}
    assert redact.value(value) == {"a": [{"b": f"x{MASK}"}, 1, None], MASK: True}
    assert value["a"][0]["b"] == f"x{KEY}"


def test_a_value_without_a_secret_is_the_same_object():
    value = {"a": [{"b": "x"}], "c": 1.5}
    assert Redactor([KEY]).value(value) is value
    assert Redactor([]).value(value) is value


@pytest.mark.parametrize("placeholder", ["", "x", "EMPTY", "none", "ollama"])
def test_a_placeholder_is_a_word_like_any_other(placeholder):
    assert Redactor([placeholder]).text(f"this is {placeholder} and {placeholder}") == (
        f"this is {placeholder} and {placeholder}"
    )


def test_a_body_is_cleaned_before_it_is_cut():
    """A cut through the key would leave a part of it that no longer matches."""
    for at in range(BODY - len(KEY) - 2, BODY + 2):
        problem = Refused("no", body="x" * at + KEY)
        with pytest.raises(Refused), Redactor([KEY]).errors():
            raise problem
        assert "sk-" not in problem.body
        assert len(problem.body) <= BODY


def test_an_error_is_cleaned_where_it_stands_and_stays_the_same_error():
    problem = Refused(f"bad key {KEY}", status=401, body=KEY)
    with pytest.raises(Refused) as caught, Redactor([KEY]).errors():
        raise problem
    assert caught.value is problem
    assert str(problem) == f"bad key {MASK}"
    assert (problem.status, problem.body) == (401, MASK)


@given(st.text('01é\\"', min_size=8, max_size=12), st.text('01é\\"'), st.text('01é\\"'))
def test_no_secret_survives(secret, before, after):
    assert secret not in Redactor([secret]).text(before + secret + after)
