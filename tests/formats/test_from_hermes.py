"""What was written is read back, up to what the docstring of `from_hermes` lists."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hostile import json_values, messages, texts
from stemma.formats.from_hermes import from_trajectory, read_trajectory
from stemma.formats.hermes import sharegpt_entry, system_prompt, to_trajectory
from stemma.formats.shapes import why_untrainable

TOOLS = [{"type": "function", "function": {"name": "f", "description": "<tools>", "parameters": {"type": "object"}}}]

MARKERS = [
    *[
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<|im_end|>",
        "{",
        "[",
        "x",
    ],
    *(
        "<REASONING_SCRATCHPAD>",
        "</REASONING_SCRATCHPAD>",
        "<think>\n",
        "\n</think>\n",
        "<think>\n</think>\n",
        "\n",
        " ",
    ),
]
ANY_TEXT = st.lists(st.sampled_from(MARKERS) | texts(2), max_size=6).map("".join)
"""What users and tools say: every marker, every character."""


def not_structure(text):
    """Whether the model's own text is free of what the format would take for its structure."""
    return not any(tag in text for tag in ("<think>", "</think>", "<tool_call>", "<REASONING_SCRATCHPAD>"))


OWN_TEXT = texts().filter(not_structure)
NOT_BLANK = OWN_TEXT.filter(str.strip)


def as_json(value):
    return json.dumps(value, ensure_ascii=False)


def is_json(text):
    try:
        return json.loads(text) is not None
    except ValueError:
        return False


RESULTS = st.one_of(
    ANY_TEXT.filter(lambda text: not is_json(text)),
    (st.lists(json_values(4)) | st.dictionaries(texts(2), json_values(4))).map(as_json),
)


CALLS = st.lists(st.tuples(texts(2), json_values(3)), max_size=3)
PREFIXES = st.sampled_from(["call", "<think>", "\ud800"])
YES_OR_NO = st.booleans()


@st.composite
def conversations(draw, style):
    """Messages of which the format carries everything."""
    said, number = [], 0
    if style == "sharegpt" and draw(YES_OR_NO):
        said.append({"role": "system", "content": draw(ANY_TEXT)})
    for _ in range(draw(st.integers(0, 3))):
        if draw(YES_OR_NO):
            said.append({"role": "user", "content": draw(ANY_TEXT)})
        reply = {"role": "assistant", "content": draw(OWN_TEXT)}
        if draw(YES_OR_NO):
            reply["reasoning"] = draw(NOT_BLANK)
        said.append(reply)
        calls = draw(CALLS)
        if not calls:
            reply["content"] = reply["content"].strip() if style == "sharegpt" else reply["content"].rstrip()
            continue
        reply["content"] = reply["content"] if reply["content"].strip() else None
        numbers = range(number, number := number + len(calls))
        prefix = "call" if style == "sharegpt" else draw(PREFIXES)
        ids = [f"{prefix}_{one}" for one in numbers]
        reply["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": as_json(arguments)}}
            for call_id, (name, arguments) in zip(ids, calls, strict=True)
        ]
        if style == "hermes" and len({name for name, _ in calls}) == len(calls):
            ids = draw(st.permutations(ids))
        said += [{"role": "tool", "tool_call_id": call_id, "content": draw(RESULTS)} for call_id in ids]
    return said


@given(conversations("hermes"))
def test_a_hermes_trajectory_is_read_back_as_the_messages_it_was_made_of(said):
    assert from_trajectory(to_trajectory(said, TOOLS)) == said


@given(conversations("sharegpt"))
def test_a_sharegpt_trajectory_is_read_back_as_the_messages_it_was_made_of(said):
    assert from_trajectory(sharegpt_entry(said, TOOLS)) == said
    assert from_trajectory(to_trajectory(said, style="sharegpt"), style="sharegpt") == said


CONTENTS = st.one_of(
    st.none(),
    st.just("[]"),
    ANY_TEXT.map(
        lambda text: text.rstrip() if "</think>" in text else text
    ),  # blank space after a thought is not carried
)


def hostile(message):
    """A message of any role whose texts are full of markers."""
    return st.builds(
        lambda message, content, reasoning: message | {"content": content, "reasoning": reasoning},
        message,
        CONTENTS,
        OWN_TEXT | st.none(),
    )


IDS = st.sampled_from(["a", "b", "", None, 3])
NAMES = st.sampled_from(["f", "g", "unknown"])


@st.composite
def mixed_ids(draw):
    """Calls and results whose ids are missing, repeated or unheard of."""
    function = st.fixed_dictionaries({"name": NAMES, "arguments": st.just("{}")})
    calls = draw(st.lists(st.fixed_dictionaries({"id": IDS, "function": function}), min_size=1, max_size=4))
    if draw(YES_OR_NO):  # in order, whatever the ids
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in calls]
    else:
        results = draw(st.lists(st.builds(lambda one: {"role": "tool", "tool_call_id": one, "content": "r"}, IDS)))
        assume(no_shared_ids(calls))
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def no_shared_ids(calls):
    known = [call["id"] for call in calls or () if call["id"]]
    return len(known) == len(set(known))


ANYTHING = st.lists(
    hostile(messages().filter(lambda one: no_shared_ids(one.get("tool_calls")))).map(lambda one: [one]) | mixed_ids(),
    max_size=4,
).map(lambda groups: [message for group in groups for message in group])


@pytest.mark.parametrize("style", ["hermes", "sharegpt"])
@given(ANYTHING)
def test_what_was_read_is_written_again_as_it_was(style, said):
    written = to_trajectory(said, TOOLS, style)
    assert to_trajectory(from_trajectory(written, style), TOOLS, style) == written


@given(ANYTHING)
def test_a_hermes_trajectory_is_always_known_for_one_and_brings_its_tools_back(said):
    read = read_trajectory(to_trajectory(said, TOOLS))
    assert read.style == "hermes"
    assert read.tools == TOOLS


@pytest.mark.parametrize("style", ["hermes", "sharegpt"])
@given(st.lists(st.sampled_from(["human", "gpt", "tool", "system"]).flatmap(
    lambda speaker: ANY_TEXT.map(lambda text: {"from": speaker, "value": text})), max_size=5))  # fmt: skip
def test_any_turns_are_read_and_after_one_writing_stay_as_they_are(style, turns):
    once = to_trajectory(from_trajectory(turns, style), style=style)
    again = to_trajectory(from_trajectory(once, style), style=style)
    assert to_trajectory(from_trajectory(again, style), style=style) == again


# ── files, which are read exactly ────────────────────────────────────────────────────────────────────────────────

NOTICE = "\n\nSome of your previous tool responses may be summarized."
CALL_TEXTS = st.sampled_from(
    [
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name":"f","arguments":{"a":1.10,"b":"\\u00e9\\/"}}\n</tool_call>',
        '<tool_call>{"arguments": {"k": 1, "k": 2}, "name": "g"}</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"x": "\\u003cthink>"}, "why": "because"}\n</tool_call>',
        '<tool_call>\n{"id": "mine", "name": "f"}\n</tool_call>',
        '<tool_call>\n{"id": 3, "name": "f", "arguments": "text"}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"x": "<|im_end|>"}}\n</tool_call>',
        '<tool_call>\n{"name": 3}\n</tool_call>',
    ]
)
RESULT_TEXTS = st.sampled_from(
    [
        '<tool_response>\n{"tool_call_id": "a", "name": "f", "content": "r"}\n</tool_response>',
        '<tool_response>\n{"tool_call_id": "mine", "name": "g", "content": {"a":1e5}}\n</tool_response>',
        '<tool_response>\n{"name": "f", "content": [1.10, "\\u00e9"]}\n</tool_response>',
        '<tool_response>{"tool_call_id": "", "name": "f", "content": null}</tool_response>',
        "<tool_response>\nraw\n</tool_response>",
    ]
)


def joined(texts):
    return st.lists(texts, max_size=4).map("".join)


TURNS = st.lists(
    st.one_of(
        st.builds(lambda value: {"from": "human", "value": value}, ANY_TEXT),
        st.builds(lambda value: {"from": "gpt", "value": value}, joined(ANY_TEXT | CALL_TEXTS | st.just("\n"))),
        st.builds(lambda value: {"from": "tool", "value": value}, joined(ANY_TEXT | RESULT_TEXTS | st.just("\n"))),
        st.builds(lambda value: {"from": "system", "value": value}, ANY_TEXT),
    ),
    max_size=6,
)
PROMPTS = st.sampled_from(
    [
        system_prompt(TOOLS),
        system_prompt(TOOLS) + NOTICE,
        system_prompt(TOOLS).replace('"required": null', '"required":null'),
        "You are someone.",
        "",
    ]
)


@given(PROMPTS, TURNS)
def test_hermes_turns_of_a_file_are_written_again_as_they_were(prompt, turns):
    turns = [{"from": "system", "value": prompt}, *turns]
    read = read_trajectory(turns, "hermes", exact=True)
    assert to_trajectory(read.messages, read.tools) == turns


@given(TURNS)
def test_sharegpt_turns_of_a_file_are_written_again_as_they_were(turns):
    read = read_trajectory(turns, "sharegpt", exact=True)
    assert to_trajectory(read.messages, style="sharegpt") == turns


@pytest.mark.parametrize("style", ["hermes", "sharegpt"])
@given(PROMPTS, TURNS)
def test_no_text_of_a_reply_is_moved_to_another_place(style, prompt, turns):
    turns = [{"from": "system", "value": prompt}, *turns]
    replies = [turn["value"] for turn in turns if turn["from"] == "gpt"]
    messages = read_trajectory(turns, style, exact=True).messages
    for value, message in zip(replies, (m for m in messages if m["role"] == "assistant"), strict=True):
        at = 0
        for text in texts_in_order(message):
            assert value.find(text, at) >= at
            at = value.find(text, at) + len(text)


def texts_in_order(message):
    """What a reply says outside its calls, and the names of its calls, in order."""
    content = message["content"] or ""
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    blocks += [{"type": "tool_use", **call["function"]} for call in message.get("tool_calls", ())]
    return [message.get("reasoning", ""), *(block.get("text", block.get("name")) for block in blocks)]


EDITS = st.sampled_from(["content", "reasoning", "tool_calls"])


@given(TURNS, EDITS)
def test_a_reply_that_was_edited_is_written_as_it_is_now(turns, field):
    read = read_trajectory([{"from": "system", "value": "S"}, *turns], "hermes", exact=True)
    for message in read.messages:
        if message["role"] == "assistant":
            call = {"id": "x", "type": "function", "function": {"name": "edited", "arguments": "{}"}}
            message[field] = [call] if field == "tool_calls" else "edited"
    written = to_trajectory(read.messages)
    assert all("edited" in turn["value"] for turn in written if turn["from"] == "gpt")


def test_text_after_a_call_stays_after_it():
    value = 'A\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\nB'
    turns = [{"from": "gpt", "value": value}, {"from": "tool", "value": "<tool_response>\nr\n</tool_response>"}]
    reply, result = read_trajectory(turns, "sharegpt", exact=True).messages
    assert reply == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "A"},
            {"type": "tool_use", "id": "call_0", "name": "f", "input": "{}"},
            {"type": "text", "text": "B"},
        ],
        "raw_turn": value,
    }
    assert result == {"role": "tool", "content": "r", "tool_call_id": "call_0"}
    assert why_untrainable(reply)[0] == "interleaved content"


def test_blank_space_after_a_call_is_no_part_of_the_text_before_it():
    value = '<think><tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n\n'
    (message,) = read_trajectory([{"from": "gpt", "value": value}], "sharegpt", exact=True).messages
    assert message["content"] == "<think>"
    assert to_trajectory([message], style="sharegpt") == [{"from": "gpt", "value": value}]
