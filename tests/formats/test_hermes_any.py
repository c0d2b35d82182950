"""Whatever messages come, they become turns of text, and JSON is written as Python's json writes it."""

import copy
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hostile import json_values, messages, raw_arguments, texts
from stemma.core.message import Message
from stemma.formats.hermes import to_trajectory

USER = {"role": "user", "content": "q"}


def assistant(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def call(arguments="{}"):
    return {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}


def result(content="r"):
    return {"role": "tool", "tool_call_id": "a", "content": content}


def unsealed(body):
    """The only markers in the hostile texts, as they were."""
    return body.replace("\\u003ctool_call>", "<tool_call>").replace("\\u003c/tool_call>", "</tool_call>")


@given(st.lists(messages() | messages().map(Message.of), max_size=3), st.sampled_from(["hermes", "sharegpt"]))
def test_any_messages_give_turns_of_text_and_are_not_changed(said, style):
    before = copy.deepcopy(said)
    turns = to_trajectory(said, style=style)
    assert all(turn.keys() == {"from", "value"} and type(turn["value"]) is str for turn in turns)
    assert said == before


@given(st.lists(messages(), max_size=3))
def test_every_json_body_is_json_without_nan(said):
    for turn in to_trajectory(said):
        if turn["from"] == "tool":
            for body in turn["value"].split("\n")[1::3]:
                json.loads(body, parse_constant=pytest.fail)


def written_by_json(text):
    """How Python's json writes a JSON text; None where it is none."""
    try:
        return json.dumps(json.loads(text, parse_constant=lambda _: 1 / 0), ensure_ascii=False, allow_nan=False)
    except (ValueError, ZeroDivisionError):
        return None


JSON_TEXTS = st.one_of(
    json_values().map(json.dumps),
    json_values().map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
    raw_arguments(),
    st.text("[]{}:,\"\\u0123456789abcdefDE+-. \n\ttrunlsxN\x00\x1f\x7f", max_size=12),
    st.from_regex(r"\[-?[0-9.eE+-]{1,25}\]", fullmatch=True),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers())).map(
        lambda pairs: "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}"
    ),
)  # fmt: skip


@given(JSON_TEXTS)
def test_json_is_written_byte_for_byte_as_pythons_json_writes_it(text):
    wanted = "{}" if text == "" else written_by_json(text)
    written = to_trajectory([assistant(call(text))])[1]["value"].split("\n")[-2]
    assert unsealed(written) == f'{{"name": "f", "arguments": {wanted or "{}"}}}'


RAW_TEXTS = st.from_regex(r'"(\\["\\/bfnrt]|\\u00(3c|e9|1f)|\\ud83d\\ude00|[a-z /é変])*"', fullmatch=True)
RAW_VALUES = RAW_TEXTS | st.sampled_from(["true", "null", "[1,2]", "-0", "0", "01", "1.0", "1e5", "9" * 18, "9" * 30])
OBJECTS = st.lists(st.tuples(RAW_TEXTS, st.sampled_from([":", " : "]), RAW_VALUES), max_size=3).map(
    lambda members: "{" + ",".join("".join(member) for member in members) + "}\n"
)


@given(OBJECTS)
@example('{"a":-0}')
@example('{"a":1e5}')
@example('{"a":[1,2]}')
@example('{"a":"\\u00e9\\/"}')
def test_a_result_that_is_json_is_written_as_pythons_json_writes_it(text):
    wanted = written_by_json(text) if text.strip()[:1] in ("{", "[") else None
    body = to_trajectory([assistant(call()), result(text)])[2]["value"].split("\n")[1]
    content = wanted or json.dumps(text, ensure_ascii=False)
    assert unsealed(body) == f'{{"tool_call_id": "a", "name": "f", "content": {content}}}'


@given(texts() | st.text(max_size=5))
def test_the_id_of_a_result_is_quoted_as_pythons_json_quotes_it(call_id):
    body = to_trajectory([assistant(call()), {**result(), "tool_call_id": call_id}])[2]["value"].split("\n")[1]
    assert unsealed(body).startswith(f'{{"tool_call_id": {json.dumps(call_id, ensure_ascii=False)}, "name": ')


@given(texts())
def test_any_text_is_quoted_as_pythons_json_quotes_it(text):
    body = to_trajectory([assistant(call()), result("x" + text)])[2]["value"].split("\n")[1]
    assert json.loads(body)["content"] == "x" + text
    assert unsealed(body) == json.dumps({"tool_call_id": "a", "name": "f", "content": "x" + text}, ensure_ascii=False)


class Sdk:
    """What an SDK hands out: an object with pydantic's `model_dump`."""

    def __init__(self, **fields):
        self.fields = fields

    def model_dump(self, *, mode, exclude_unset):
        assert (mode, exclude_unset) == ("json", True)
        return self.fields


def test_an_sdks_objects_are_read_like_dicts():
    calls = [Sdk(**call())]
    wanted = to_trajectory([USER, assistant(call()), result()])
    assert to_trajectory([USER, Sdk(role="assistant", content=None, tool_calls=calls), result()]) == wanted
    assert to_trajectory([USER, assistant(*calls), result()]) == wanted
