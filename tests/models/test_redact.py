"""Promises of keeping secrets out of what comes from a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.core.call import Call, pack_ids
from stemma.core.exclusions import Rules, why_not
from stemma.models.errors import MOST_BODY, Refused
from stemma.models.failures import from_error_object, from_status
from stemma.models.protocol import Delta, Reply
from stemma.models.redact import BODY, MESSAGE, RedactedDeltas, redacted_errors, redacted_reply
from stemma.redact import MASK, Redactor

KEY = "Zx81Qw92Er73Ty64Ui55Op46As37Df28"
REDACTOR = Redactor([KEY])


def cleaned(problem):
    with pytest.raises(type(problem)) as caught, redacted_errors(REDACTOR):
        raise problem
    assert caught.value is problem
    return problem


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_error_is_cleaned_where_it_stands_and_stays_the_same_error():
    problem = cleaned(Refused(f"bad key {KEY}", status=401, body=KEY))
    assert str(problem) == f"bad key {MASK}"
    assert (problem.status, problem.body) == (401, MASK)


@pytest.mark.parametrize("limit", [BODY, MESSAGE, 300, MOST_BODY])
@pytest.mark.parametrize("filler", ["x", " ", "\n\t ", f"{KEY} "], ids=["letters", "blanks", "white", "keys"])
def test_no_cut_leaves_a_part_of_a_key(limit, filler):
    """300 characters of a message were once taken before the key was looked for: 25 of its 31 were shown."""
    for before in range(limit - len(KEY) - 60, limit + 2, 5):
        text = filler * (before // len(filler)) + KEY + " tail"
        said = [
            from_status(400, {}, text.encode(), now=0.0),
            from_error_object({"message": text}, text),
        ]
        for problem in map(cleaned, said):
            assert len(problem.body) <= BODY
            assert len(str(problem)) <= MESSAGE + 1
            assert not any(KEY[at : at + 4] in f"{problem} {problem.body}" for at in range(len(KEY) - 3))


# ── replies ──────────────────────────────────────────────────────────────────────────────────────────────────────


def reply(content, **said):
    call = Call(model="m", prompt_ids=pack_ids([1]), sampled_ids=pack_ids([2]), **said)
    return Reply(message={"role": "assistant", "content": content}, call=call)


def test_a_reply_with_a_secret_is_recorded_without_it_and_never_trained():
    found = redacted_reply(reply(f"it is {KEY}", extra={"raw": KEY, "logprobs": [{"token": KEY[:5]}]}), REDACTOR)
    assert found.message["content"] == f"it is {MASK}"
    assert found.call.extra == {
        "raw": MASK,
        "redacted": True,
        "trainable": False,
        "tokens": "the reply held a secret, and its tokens would spell it",
    }
    assert (found.call.prompt_ids, found.call.sampled_ids, found.call.logprobs) == (None, None, None)
    assert why_not(found.call, Rules(), None) == ("untrainable", "its call says trainable: False")


def test_a_secret_beside_a_reply_goes_and_the_reply_stays_what_it_is():
    found = redacted_reply(reply("fine", params={"api_key": KEY}, usage={"note": KEY}), REDACTOR)
    assert (found.call.params, found.call.usage) == ({"api_key": MASK}, {"note": MASK})
    assert found.call.sampled_ids == pack_ids([2])
    assert found.call.extra == {}


def test_a_reply_without_a_secret_is_the_same_object():
    said = reply("fine")
    assert redacted_reply(said, REDACTOR) is said


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 40), st.sampled_from(["text", "reasoning", "tool"]))
def test_a_key_that_streams_in_pieces_is_not_shown(length, kind):
    shown = []
    deltas = RedactedDeltas(shown.append, REDACTOR)
    whole = f"the key is {KEY}, and {KEY}"
    for at in range(0, len(whole), length):
        deltas(Delta(kind, whole[at : at + length]))
    deltas.end()
    assert "".join(delta.text for delta in shown) == f"the key is {MASK}, and {MASK}"
    assert {delta.kind for delta in shown} == {kind}


def test_kinds_are_shown_in_the_order_in_which_they_come():
    shown = []
    deltas = RedactedDeltas(shown.append, REDACTOR)
    for delta in (
        Delta("reasoning", "so Z"),
        Delta("text", "Yes Z"),
        Delta("again", f"broke: {KEY}"),
        Delta("text", "a"),
    ):
        deltas(delta)
    deltas.end()
    assert shown == [
        Delta("reasoning", "so "),
        Delta("reasoning", "Z"),
        Delta("text", "Yes "),
        Delta("again", f"broke: {MASK}"),
        Delta("text", "a"),
    ]
