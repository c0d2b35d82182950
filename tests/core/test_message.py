"""A message is a frozen value: nothing reaches into it, and every field of it counts."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from hostile import messages
from stemma.core.ids import ROOT, chain, node_id
from stemma.core.message import Message, as_message, same_messages
from stemma.errors import BadMessage

CALLS = {
    "role": "assistant",
    "content": None,
    "reasoning": "I should look.",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a", "path": "b"}'}}
    ],
    "tool_call_id": "c0",
    "name": "helper",
    "x_provider": {"cached": True, "score": 1, "weight": 1.0},
}


class SdkMessage:
    """What an SDK hands out: an object with pydantic's `model_dump`, nested objects inside."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str, exclude_unset: bool) -> dict[str, Any]:
        assert mode == "json"
        assert exclude_unset
        return {name: value for name, value in self.fields.items() if value is not None}


@given(messages())
def test_a_message_comes_back_as_it_went_in_with_its_keys_in_order(fields):
    assert json.dumps(Message.of(fields).to_dict(), ensure_ascii=False) == json.dumps(fields, ensure_ascii=False)
    assert Message.of(fields).role == fields["role"]


@given(messages())
def test_a_message_read_back_from_its_bytes_is_the_same_message(fields):
    message = Message.of(fields)
    stored = Message.stored(message.body, message.id)
    assert (stored, stored.id, stored.role) == (message, message.id, message.role)


@given(messages(), messages())
def test_messages_are_equal_exactly_if_every_field_is(one, other):
    same = json.dumps(one, sort_keys=True, ensure_ascii=False) == json.dumps(other, sort_keys=True, ensure_ascii=False)
    assert (Message.of(one) == Message.of(other)) == same
    assert (Message.of(one).id == Message.of(other).id) == same


@pytest.mark.parametrize("field", ["body", "role", "known_id", "content"])
def test_a_message_is_frozen(field):
    message = Message.of(CALLS)
    with pytest.raises(AttributeError):
        setattr(message, field, "changed")


def test_the_authors_dict_is_not_aliased():
    fields = copy.deepcopy(CALLS)
    message = Message.of(fields)
    before = message.id
    fields["tool_calls"][0]["function"]["arguments"] = "changed"
    fields["content"] = "changed"
    assert message.to_dict() == CALLS
    assert Message.of(message.to_dict()).id == before


def test_each_reader_gets_a_dict_of_its_own():
    message = Message.of(CALLS)
    message.to_dict()["tool_calls"].clear()
    message.get("tool_calls").clear()
    assert message.to_dict() == CALLS


def deeper(path: tuple[Any, ...], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(fields: Any) -> None:
        for step in path[:-1]:
            fields = fields[step]
        fields[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        deeper(("role",), "user"),
        deeper(("content",), ""),
        deeper(("reasoning",), "I should look"),
        deeper(("tool_calls",), []),
        deeper(("tool_calls", 0, "id"), "c2"),
        deeper(("tool_calls", 0, "function", "name"), "write"),
        deeper(("tool_calls", 0, "function", "arguments"), '{"path": "b"}'),
        deeper(("tool_call_id",), "c1"),
        deeper(("name",), None),
        deeper(("x_provider", "cached"), 1),
        deeper(("x_provider", "score"), True),
        deeper(("x_provider", "score"), 1.0),
        deeper(("x_provider", "weight"), 1),
        deeper(("x_new",), None),
    ],
)
def test_every_field_counts(change):
    fields = copy.deepcopy(CALLS)
    change(fields)
    assert Message.of(fields) != Message.of(CALLS)
    assert Message.of(fields).id != Message.of(CALLS).id


def test_key_order_does_not_count_but_is_kept():
    there = Message.of({"role": "user", "content": "hi", "x": {"a": 1, "b": 2}})
    back = Message.of({"x": {"b": 2, "a": 1}, "content": "hi", "role": "user"})
    assert there == back
    assert hash(there) == hash(back)
    assert list(back.to_dict()) == ["x", "content", "role"]
    assert list(back.to_dict()["x"]) == ["b", "a"]


def test_the_arguments_of_a_tool_call_stay_the_raw_string_that_came():
    raw = '{"path": "a", "path": "b"}'
    message = Message.of(CALLS)
    assert message.get("tool_calls")[0]["function"]["arguments"] == raw


def test_an_sdks_objects_are_taken_as_they_dump_themselves():
    function = SdkMessage(name="read", arguments="{}")
    call = SdkMessage(id="c1", type="function", function=function, index=None)
    message = Message.of(SdkMessage(role="assistant", content="", tool_calls=[call], refusal=None))
    assert message.to_dict() == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    }


def test_a_message_is_taken_as_it_is():
    message = Message.of(CALLS)
    assert Message.of(message) is message


@pytest.mark.parametrize("ask_for_the_id_first", [True, False])
def test_a_message_survives_pickling(ask_for_the_id_first):
    message = Message.of({"role": "user", "content": "\ud83d\ude00\x00"})
    if ask_for_the_id_first:
        assert message.id
    copied = pickle.loads(pickle.dumps(message))
    assert (copied, copied.id, copied.role, copied.to_dict()) == (message, message.id, "user", message.to_dict())


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({}, "needs a role"),
        ({"content": "hi"}, "needs a role"),
        ({"role": None}, "needs a role"),
        ({"role": ""}, "needs a role"),
        ({"role": 1}, "needs a role"),
        ({"role": ["user"]}, "needs a role"),
        ("hi", "not str"),
        ([], "not list"),
        (None, "not NoneType"),
        (1, "not int"),
        (object(), "a object"),
        ({"role": "user", "content": float("nan")}, r"message\['content'\]"),
    ],
)
def test_what_is_no_message_is_refused(value, what):
    with pytest.raises(BadMessage, match=what) as refusal:
        Message.of(value)
    assert isinstance(refusal.value, ValueError)


def test_a_refusal_does_not_print_a_mebibyte():
    with pytest.raises(BadMessage) as refusal:
        Message.of({"content": "x" * 1024 * 1024})
    assert len(str(refusal.value)) < 400


def test_a_message_is_equal_to_nothing_but_a_message():
    message = Message.of(CALLS)
    assert message != CALLS
    assert message != message.body
    assert as_message("hi") is None
    assert same_messages([message], [CALLS])
    assert not same_messages([message], [CALLS, CALLS])
    assert not same_messages([message], ["hi"])
    assert not same_messages([message], None)


# ── ids that must never change ───────────────────────────────────────────────────────────────────────────────────

GOLDEN = [
    ({"role": "user", "content": "hi"}, "316da7de4ee057d4cd18a1adeb56078b1d93a17d5281b2b287fe25dfb6edec91"),
    ({"content": "hi", "role": "user"}, "316da7de4ee057d4cd18a1adeb56078b1d93a17d5281b2b287fe25dfb6edec91"),
    ({"role": "system", "content": ""}, "176dee5d2d6e2473443cc5cb46692c6e381edbbbd51881511eb4f361a66d1e60"),
    ({"role": "user", "content": None}, "48a76cb2e36a84c28fb38110f9524d0c16ff3c112806f4dc323f15ece616ce18"),
    ({"role": "user", "content": "\ud83d\ude00"}, "df65a2347bbb086a53bb6962a3aad588d66a168d4cd0e473e1431805dd037201"),
    (
        {"role": "user", "content": "😀\x00\u2028é\ufeff"},
        "1c081c1a53fa9163818c0f2fd7783860036bb1f19b181992b217f8f776371625",
    ),
    (
        {"role": "user", "content": "", "x": [True, 1, 1.0, -0.0, 1e22, 2**64 - 1, None, {"b": 1, "a": 2}]},
        "290688f6977f87d1fdb075386f787de04428318572f067d04363bd5ebd513545",
    ),
    (CALLS, "fd6d26b1e3a5e6e7e2cb927bce0e1ba236c7b7437dbb085a41cdd3934d7ae1d0"),
]
"""Ids are in people's stores: if one of these changes, every store that was ever written is broken."""


@pytest.mark.parametrize(("fields", "expected"), GOLDEN)
def test_the_id_of_a_message_is_for_ever(fields, expected):
    assert Message.of(fields).id.hex() == expected


def test_the_id_of_a_node_is_for_ever():
    ids = [Message.of(fields).id for fields, _ in GOLDEN]
    assert ROOT.hex() == "4fa29ea188c129b866a97447677c0b952549317f37e5e30f24d8cd776c112547"
    assert node_id(ROOT, ids[0]).hex() == "ccac9ad03a6fb99835501ae4340f7ae4c26d443aecdf5666b01ef837a094c991"
    assert chain(ROOT, ids)[-1].hex() == "917196d985dfcb5265346b75ee77b7a3b075ae371fa431a460c89d8057921a1b"


def test_a_node_is_its_message_and_everything_before_it():
    one, two, three = (Message.of({"role": "user", "content": text}).id for text in "123")
    assert chain(ROOT, [one, two])[0] == chain(ROOT, [one, three])[0]
    assert chain(ROOT, [one, three])[-1] != chain(ROOT, [two, three])[-1]
    assert chain(chain(ROOT, [one])[-1], [two, three]) == chain(ROOT, [one, two, three])[1:]
    assert chain(ROOT, []) == []
