"""A call keeps all that is known of it, survives its bytes, and refuses what it could not give back."""

import copy
import json
import pickle
import struct
from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import json_values, texts
from stemma import Call
from stemma.core.call import TOKEN_FIELDS, unpack_ids, unpack_logprobs
from stemma.core.canonical import MAX_INT
from stemma.errors import BadCall

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]

EVERYTHING = {
    "model": "m-1",
    "id": "req-1",
    "tools": TOOLS,
    "params": {"temperature": 1.0, "top_p": 1, "seed": MAX_INT, "stop": ["\n"]},
    "finish_reason": "tool_calls",
    "usage": {"prompt_tokens": 10, "details": {"cached": 0}},
    "started": 1763200000.25,
    "seconds": 0.5,
    "cost": 0.0,
    "prompt_ids": [1, 2, 3],
    "sampled_ids": [4, 5],
    "logprobs": [-0.5, -1.25],
    "extra": {"policy": "step-7", "raw": "\ud83d\ude00\x00"},
}


def exact(value):
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def back(call):
    beside = {name: getattr(call, name) for name in (*TOKEN_FIELDS, "tools")}
    return Call.from_bytes(call.to_bytes(), **beside)


def some(strategy):
    return st.none() | strategy


def calls():
    times = some(st.floats(allow_nan=False, allow_infinity=False))
    fields = st.dictionaries(texts(2), json_values(4), max_size=3)
    return st.builds(
        Call,
        model=texts().filter(bool),
        id=some(texts()),
        tools=some(st.lists(fields, max_size=2)),
        params=fields,
        finish_reason=some(texts()),
        usage=fields,
        started=times,
        seconds=times,
        cost=times,
        prompt_ids=some(st.lists(st.integers(0, 2**31 - 1), max_size=5)),
        extra=fields,
    )


# ── fields ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_is_optional_but_the_model():
    call = Call(model="m")
    assert (call.params, call.usage, call.extra) == ({}, {}, {})
    rest = {name for name in call.__struct_fields__ if getattr(call, name) is None}
    assert rest == {"id", "tools", "finish_reason", "started", "seconds", "cost", *TOKEN_FIELDS}
    with pytest.raises(TypeError):
        Call()
    with pytest.raises(TypeError):
        Call("m")


def test_every_field_is_kept_as_it_was_given():
    call = Call(**EVERYTHING)
    for name in set(EVERYTHING) - set(TOKEN_FIELDS):
        assert exact(getattr(call, name)) == exact(EVERYTHING[name])
    assert list(unpack_ids(call.prompt_ids)) == [1, 2, 3]
    assert list(unpack_ids(call.sampled_ids)) == [4, 5]
    assert list(unpack_logprobs(call.logprobs)) == [-0.5, -1.25]


def test_nothing_given_for_a_dict_is_an_empty_one():
    assert Call(model="m", params=None, usage=None, extra=None) == Call(model="m")


def test_a_cost_of_zero_is_not_an_unknown_cost():
    assert back(Call(model="m", cost=0.0)).cost == 0.0
    assert back(Call(model="m")).cost is None
    assert Call(model="m", cost=0.0).to_bytes() != Call(model="m").to_bytes()


@pytest.mark.parametrize("name", sorted(EVERYTHING.keys() - {"logprobs", "sampled_ids"}))
def test_every_field_counts_in_what_the_id_is_made_of(name):
    other = {"model": "m-2", "tools": [], "started": 1.0, "seconds": 1.0, "cost": None, "prompt_ids": [1, 2]}
    changed = EVERYTHING | {name: other.get(name, {"x": 1} if isinstance(EVERYTHING[name], dict) else "other")}
    assert Call(**changed).parts() != Call(**EVERYTHING).parts()
    assert Call(**changed) != Call(**EVERYTHING)


def test_tokens_count_in_what_the_id_is_made_of():
    assert Call(**EVERYTHING | {"sampled_ids": [4, 6]}).parts() != Call(**EVERYTHING).parts()
    assert Call(**EVERYTHING | {"logprobs": [-0.5, -1.5]}).parts() != Call(**EVERYTHING).parts()


def test_a_call_is_frozen():
    call = Call(**EVERYTHING)
    for name in EVERYTHING:
        with pytest.raises(AttributeError):
            setattr(call, name, None)


def test_the_callers_dicts_are_not_aliased():
    fields = copy.deepcopy(EVERYTHING)
    call = Call(**fields)
    fields["params"]["stop"].append("x")
    fields["usage"]["details"]["cached"] = 9
    fields["extra"].clear()
    fields["tools"][0]["function"]["name"] = "write"
    fields["prompt_ids"].clear()
    assert call == Call(**EVERYTHING)


def test_two_calls_share_no_default():
    one, other = Call(model="m"), Call(model="m")
    one.params["x"] = 1
    assert other.params == {}


def test_an_sdks_objects_are_taken_as_they_dump_themselves():
    class Usage:
        def model_dump(self, *, mode, exclude_unset):
            return {"prompt_tokens": 1}

    assert Call(model="m", usage=Usage()).usage == {"prompt_tokens": 1}


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(calls())
def test_a_call_survives_its_bytes_whatever_text_is_in_it(call):
    again = back(call)
    assert again == call
    for name in set(EVERYTHING) - set(TOKEN_FIELDS):
        assert exact(getattr(again, name)) == exact(getattr(call, name))
    assert again.parts() == call.parts()


@given(calls())
def test_a_call_survives_pickling_and_copying(call):
    for again in (pickle.loads(pickle.dumps(call)), copy.deepcopy(call), msgspec.structs.replace(call)):
        assert again == call
        assert again.parts() == call.parts()


def test_a_call_with_everything_survives_its_bytes():
    assert back(Call(**EVERYTHING)) == Call(**EVERYTHING)


def test_the_order_of_parameters_is_no_part_of_a_call_but_the_order_of_tools_is():
    one = Call(model="m", params={"a": 1, "b": 2}, tools=[{"name": "a"}, {"name": "b"}])
    turned = Call(model="m", params={"b": 2, "a": 1}, tools=[{"name": "a"}, {"name": "b"}])
    other = Call(model="m", params={"a": 1, "b": 2}, tools=[{"name": "b"}, {"name": "a"}])
    assert one.parts() == turned.parts()
    assert one.parts() != other.parts()


def test_no_tools_known_and_no_tools_offered_are_different():
    assert Call(model="m", tools=None).parts() != Call(model="m", tools=[]).parts()


# ── packing ──────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_ids_survive_packing_at_four_bytes_each(ids):
    call = Call(model="m", prompt_ids=ids, sampled_ids=tuple(ids))
    assert list(unpack_ids(call.prompt_ids)) == list(unpack_ids(call.sampled_ids)) == ids
    assert call.prompt_ids == struct.pack(f"<{len(ids)}i", *ids)


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_logprobs_survive_packing_at_four_bytes_each(logprobs):
    call = Call(model="m", sampled_ids=range(len(logprobs)), logprobs=logprobs)
    assert list(unpack_logprobs(call.logprobs)) == logprobs
    assert call.logprobs == struct.pack(f"<{len(logprobs)}f", *logprobs)


@pytest.mark.parametrize(
    "ids", [[1, 2, 3], (1, 2, 3), range(1, 4), iter([1, 2, 3]), array("i", [1, 2, 3]), array("q", [1, 2, 3])]
)
def test_any_sequence_of_numbers_can_be_given(ids):
    assert list(unpack_ids(Call(model="m", prompt_ids=ids).prompt_ids)) == [1, 2, 3]


def test_packed_ids_are_taken_as_they_are():
    packed = struct.pack("<3i", 1, 2, 3)
    assert Call(model="m", prompt_ids=packed).prompt_ids == packed


def test_no_tokens_known_and_no_tokens_sampled_are_different():
    assert Call(model="m").sampled_ids is None
    assert Call(model="m", sampled_ids=[]).sampled_ids == b""


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", [None, "", 5, b"m", ["m"]])
def test_a_call_needs_the_name_of_its_model(model):
    with pytest.raises(BadCall, match="needs the name of its model"):
        Call(model=model)


NAN = float("nan")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"params": {"temperature": NAN}}, r"call\.params\['temperature'\]"),
        ({"usage": {"details": [{1: 2}]}}, r"call\.usage\['details'\]\[0\]"),
        ({"extra": {"x": {1, 2}}}, r"call\.extra\['x'\]"),
        ({"extra": {"x": 2**64}}, r"call\.extra\['x'\]"),
        ({"tools": [{"f": object()}]}, r"call\.tools\[0\]\['f'\]"),
        ({"params": []}, r"call\.params"),
        ({"usage": "many"}, r"call\.usage"),
        ({"extra": 1}, r"call\.extra"),
        ({"tools": {"name": "read"}}, r"call\.tools"),
        ({"tools": ["read"]}, r"call\.tools"),
        ({"cost": NAN}, r"call\.cost"),
        ({"cost": "cheap"}, r"call\.cost"),
        ({"started": float("inf")}, r"call\.started"),
        ({"started": object()}, r"call\.started"),
        ({"seconds": True}, r"call\.seconds"),
        ({"id": 5}, r"call\.id"),
        ({"finish_reason": ["stop"]}, r"call\.finish_reason"),
    ],
)
def test_what_could_not_be_given_back_is_refused_with_its_place(fields, place):
    with pytest.raises(BadCall, match=place) as refusal:
        Call(model="m", **fields)
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize("field", ["prompt_ids", "sampled_ids"])
@pytest.mark.parametrize("ids", ["abc", [1.5], ["1"], [None], [2**31], 5, b"abc", bytearray(b"abcde")])
def test_what_is_no_token_id_is_refused(field, ids):
    with pytest.raises(BadCall, match=field):
        Call(model="m", **{field: ids})


@pytest.mark.parametrize("logprobs", ["abc", [None], ["-0.5"], [1j], b"abc"])
def test_what_is_no_logprob_is_refused(logprobs):
    with pytest.raises(BadCall, match="logprob"):
        Call(model="m", sampled_ids=[1], logprobs=logprobs)


@pytest.mark.parametrize(("ids", "logprobs"), [([1, 2], [-0.5]), ([], [-0.5]), (None, [-0.5]), ([1], [])])
def test_there_is_one_logprob_for_each_sampled_id(ids, logprobs):
    with pytest.raises(BadCall, match="one logprob for each"):
        Call(model="m", sampled_ids=ids, logprobs=logprobs)
