"""Messages of any provider become plain chat messages, and a reply that text cannot say is named as such."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import json_values, messages, texts
from stemma.formats.shapes import broken_arguments, chat_messages, why_untrainable

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def text(said):
    return {"type": "text", "text": said}


def thinking(said):
    return {"type": "thinking", "thinking": said, "signature": "s"}


def tool_use(call_id="c", name="f", given=None):
    return {"type": "tool_use", "id": call_id, "name": name, "input": given or {}}


def assistant(content=None, **fields):
    return {"role": "assistant", "content": content, **fields}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def mapped(message):
    (made,), origins = chat_messages([message])
    assert list(origins) == [0]
    return made


# ── Anthropic blocks ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reply_of_blocks_is_one_chat_message():
    reply = assistant([thinking("t"), text("a"), text("b"), tool_use("x", "f", {"k": "ü"})], stop_reason="tool_use")
    assert mapped(reply) == {
        "role": "assistant",
        "content": "ab",
        "reasoning": "t",
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"k": "ü"}'}}],
        "stop_reason": "tool_use",
    }
    assert mapped(assistant([tool_use()]))["content"] is None
    assert mapped(assistant([thinking("t")]))["content"] == ""


def test_results_become_tool_messages_before_the_rest_of_the_users_message():
    said = user(
        {"type": "tool_result", "tool_use_id": "x", "content": [text("r1"), text("r2")]},
        {"type": "tool_result", "tool_use_id": "y", "content": "r3", "is_error": True},
        {"type": "tool_result", "tool_use_id": "z"},
        text("go on"),
        IMAGE,
    )
    made, origins = chat_messages([{"role": "system", "content": "S"}, said])
    assert made[1:] == [
        {"role": "tool", "content": "r1\nr2", "tool_call_id": "x"},
        {"role": "tool", "content": "r3", "tool_call_id": "y", "is_error": True},
        {"role": "tool", "content": "", "tool_call_id": "z"},
        {"role": "user", "content": [text("go on"), IMAGE]},
    ]
    assert origins == [0, 1, 1, 1, 1]


def test_a_result_with_an_image_keeps_its_parts():
    said = user({"type": "tool_result", "tool_use_id": "x", "content": [text("r"), IMAGE]})
    assert mapped(said) == {"role": "tool", "content": [text("r"), IMAGE], "tool_call_id": "x"}


def test_a_call_that_stands_in_both_places_is_one_call():
    reply = assistant([text("a"), tool_use("c"), tool_use("d")], tool_calls=[CALL])
    assert [call["id"] for call in mapped(reply)["tool_calls"]] == ["c", "d"]


def test_reasoning_in_a_field_and_in_blocks_is_said_once():
    reply = assistant([thinking("t"), text("a")], reasoning_content="t", reasoning_details=[{"text": "t"}])
    assert mapped(reply) == {"role": "assistant", "content": "a", "reasoning": "t"}
    assert mapped(assistant([thinking("one"), thinking("on"), text("a")]))["reasoning"] == "one\n\non"


# ── Responses items ──────────────────────────────────────────────────────────────────────────────────────────────

REASONING = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "t"}]}
FUNCTION_CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
SAID = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}


def test_items_in_a_content_list_are_one_reply():
    assert mapped(assistant([REASONING, SAID, FUNCTION_CALL])) == {
        "role": "assistant",
        "content": "a",
        "reasoning": "t",
        "tool_calls": [CALL],
    }


def test_an_item_with_a_role_is_a_message():
    assert mapped(SAID) == {"role": "assistant", "id": "m", "content": "a"}
    assert mapped({"role": "assistant", **REASONING}) == {"role": "assistant", "reasoning": "t", "content": ""}
    assert mapped({"role": "assistant", **FUNCTION_CALL}) == {
        "role": "assistant",
        "tool_calls": [CALL],
        "content": None,
    }
    output = {"role": "tool", "type": "function_call_output", "call_id": "c", "output": "r"}
    assert mapped(output) == {"role": "tool", "content": "r", "tool_call_id": "c"}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}
    assert mapped(asked) == {"role": "user", "content": [text("q")]}


def test_reasoning_that_an_open_model_tells_in_full_is_preferred_to_its_summary():
    item = {**REASONING, "content": [{"type": "reasoning_text", "text": "all of it"}]}
    assert mapped(assistant([item, SAID]))["reasoning"] == "all of it"


# ── every mark once ──────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def marked_blocks(draw):
    """Blocks of a reply in the order a chat message can say, each with a mark of its own."""
    kinds = draw(st.lists(st.sampled_from("tca"), max_size=6))
    ordered = sorted(kinds, key="tca".index)
    makers = {
        "t": lambda mark: draw(st.sampled_from([thinking(mark), {"type": "reasoning", "summary": [text(mark)]}])),
        "c": lambda mark: draw(st.sampled_from([text(mark), {"type": "output_text", "text": mark}, mark])),
        "a": lambda mark: tool_use(mark, "f", {"mark": mark}),
    }
    return [makers[kind](f"M{at}-{draw(texts(2))}-M") for at, kind in enumerate(ordered)], ordered


@given(marked_blocks())
def test_every_block_of_a_reply_is_said_once_and_whole(made):
    blocks, kinds = made
    message = mapped(assistant(blocks))
    marks = [f"M{at}-" for at in range(len(kinds))]
    calls = message.get("tool_calls", [])
    said = {
        "t": message.get("reasoning", ""),
        "c": message["content"] or "",
        "a": " ".join(call["function"]["arguments"] for call in calls),
    }
    for kind, mark in zip(kinds, marks, strict=True):
        assert [place for place in said if mark in said[place]] == [kind]
        assert said[kind].count(mark) == 1
    assert [json.loads(call["function"]["arguments"])["mark"] for call in calls] == [call["id"] for call in calls]
    assert why_untrainable(message) == why_untrainable(assistant(blocks))
    assert (why_untrainable(message) is None) == bool(blocks)


ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "critic"])
ODD_BLOCKS = st.dictionaries(
    st.sampled_from(["type", "text", "content", "thinking", "id", "input", "name", "call_id", "tool_use_id", "output"]),
    st.sampled_from(
        ["text", "thinking", "tool_use", "tool_result", "function_call", "function_call_output", "message", "image"]
    )
    | json_values(3),
    max_size=4,
)
ODD_MESSAGES = st.builds(
    lambda role, content, more: {"role": role, "content": content, **more},
    ROLES,
    st.lists(ODD_BLOCKS | texts(1), max_size=4) | json_values(3),
    st.sampled_from([{}, {"type": "message"}, {"type": "function_call"}, {"type": []}, {"tool_calls": "x"}]),
)


@given(st.lists(messages() | ODD_MESSAGES, max_size=5))
def test_any_messages_are_mapped_without_being_changed_and_each_reply_to_one_message(said):
    before = deepcopy(said)
    made, origins = chat_messages(said)
    assert said == before
    assert len(made) == len(origins)
    assert list(origins) == sorted(origins)
    replies = [at for at, message in zip(origins, made, strict=True) if message.get("role") == "assistant"]
    assert replies == [at for at, message in enumerate(said) if message["role"] == "assistant"]
    for message in [*said, *made]:
        why_untrainable(message)
        broken_arguments(message)


@given(st.lists(messages().filter(lambda message: not isinstance(message["content"], list)), max_size=5))
def test_plain_messages_are_returned_as_the_list_they_are(said):
    made, origins = chat_messages(said)
    assert made is said
    assert list(origins) == list(range(len(said)))


# ── why a reply is not trained ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (assistant(refusal="no"), "refusal"),
        (assistant([text("a"), {"type": "refusal", "refusal": "no"}]), "refusal"),
        (assistant(function_call={"name": "f", "arguments": "{}"}), "function_call"),
        (assistant(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "f"}}]), "custom tool call"),
        (assistant([{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}]), "custom tool call"),
        (assistant(audio={"id": "a"}), "not text"),
        (assistant("a", images=[{"type": "image_url"}]), "not text"),
        (assistant([text("a"), IMAGE]), "not text"),
        (assistant([{"type": "redacted_thinking", "data": "x"}, text("a")]), "redacted thinking"),
        (assistant([{"type": "reasoning", "summary": [], "encrypted_content": "x"}, SAID]), "redacted thinking"),
        (assistant("a", reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]), "redacted thinking"),
        (assistant([tool_use(), text("a")]), "interleaved content"),
        (assistant([text("a"), thinking("t")]), "interleaved content"),
        (assistant([REASONING, FUNCTION_CALL, REASONING, FUNCTION_CALL]), "interleaved content"),
        (assistant([text("a"), {"type": "server_tool_use", "name": "web_search"}]), "unknown content part"),
        (assistant({"text": "a"}), "unknown content part"),
        (assistant([5]), "unknown content part"),
        ({"role": "assistant", "type": "web_search_call", "id": "ws"}, "unknown content part"),
        (assistant(tool_calls=[{"id": "c", "type": "function"}]), "malformed tool call"),
        (assistant(tool_calls=[{"id": "c", "function": {"arguments": "{}"}}]), "malformed tool call"),
        (assistant(tool_calls=["x"]), "malformed tool call"),
        (assistant(tool_calls=[{**CALL, "extra": {"why": "because"}}]), "malformed tool call"),
        (assistant([{"type": "tool_use", "id": "c", "input": {}}]), "malformed tool call"),
        (assistant(), "empty reply"),
        (assistant(""), "empty reply"),
        (assistant([]), "empty reply"),
        (assistant(None, tool_calls=[None]), "empty reply"),
    ],
)  # fmt: skip
def test_a_reply_that_text_cannot_say_is_named(reply, reason):
    assert why_untrainable(reply)[0] == reason
    assert why_untrainable(mapped(reply))[0] == reason


@pytest.mark.parametrize(
    "reply",
    [
        assistant("a"),
        assistant("", reasoning="t"),
        assistant(None, thinking="t"),
        assistant(None, tool_calls=[CALL]),
        assistant("a", refusal=None, function_call=None, audio=None, tool_calls=None),
        assistant(None, tool_calls=[{"function": {"name": "f", "arguments": '{"x":'}}]),
        assistant([thinking("t"), text("a"), tool_use(), text("")]),
        assistant("a", reasoning_details=[{"type": "reasoning.text", "text": "t"}, {"type": "reasoning.encrypted"}]),
        assistant("a", type="ai"),
    ],
)
def test_a_reply_that_text_can_say_may_be_trained(reply):
    assert why_untrainable(reply) is None
    assert why_untrainable(mapped(reply)) is None


@pytest.mark.parametrize("arguments", ["", "{", "[]", "null", "5", '{"a": NaN}', None, [], "{'a': 1}"])
def test_arguments_that_are_not_an_object_are_broken(arguments):
    call = {"function": {"name": "g", "arguments": arguments}}
    assert "the call of 'g'" in broken_arguments(assistant(tool_calls=[None, CALL, call]))


@pytest.mark.parametrize("arguments", ["{}", ' {"a": 1}\n', '{"a": "\\ud800"}', {"a": 1}, {}])
def test_an_object_in_any_spelling_is_not_broken(arguments):
    assert broken_arguments(assistant(tool_calls=[{"function": {"name": "g", "arguments": arguments}}])) is None
    assert broken_arguments(assistant("a")) is None


@pytest.mark.parametrize("content", ["", " ", "\n\t", None, []])
def test_a_reply_of_nothing_but_blank_space_is_an_empty_one(content):
    found = why_untrainable(assistant(content))
    assert found is not None
    assert found[0] == "empty reply"
