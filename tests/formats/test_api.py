"""Wherever a provider puts the reasoning, a reply ends with it in one field; nothing else of the reply changes."""

import copy
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import messages, texts
from stemma.errors import BadMessage
from stemma.formats.api import normalise_reply, text_of


def reply(content="4", **fields):
    return {"role": "assistant", "content": content, **fields}


WANTED = reply(reasoning="2+2")


@pytest.mark.parametrize(
    "received",
    [
        reply(reasoning="2+2"),
        reply(reasoning_content="2+2"),
        reply(reasoning="2+2", reasoning_content="2+2"),
        reply(reasoning=None, reasoning_content="2+2"),
        reply(reasoning=" \n", reasoning_content="2+2"),
        reply([{"type": "thinking", "thinking": "2+2", "signature": "s"}, {"type": "text", "text": "4"}]),
        reply([{"type": "thinking", "thinking": [{"type": "text", "text": "2+2"}]}, {"type": "text", "text": "4"}]),
        reply("<think>2+2</think>4"),
        reply("<think>\n2+2\n</think>\n\n4"),
        reply("<Thinking>2+2</thinking>4"),
        reply("<thought>2+2</thought> 4"),
        reply("<reasoning>2+2</reasoning>4"),
        reply("<REASONING_SCRATCHPAD>\n2+2\n</REASONING_SCRATCHPAD>4"),
        reply("2+2</think>4"),
        reply("2+2\n</think>\n\n4"),
        reply([{"type": "text", "text": "<think>2+2</think>4"}]),
        reply("<think>2+2</think>4", reasoning="2+2"),
        {"content": "4", "reasoning": "2+2"},
    ],
)
def test_each_providers_way_gives_the_same_reply(received):
    assert normalise_reply(received) == WANTED


@pytest.mark.parametrize("key", ["summary", "thinking", "content", "text"])
def test_reasoning_details_are_read_and_stay_for_the_provider(key):
    details = [{"type": "reasoning.x", key: "2+2", "signature": "opaque"}, {"type": "reasoning.encrypted", "data": "…"}]
    assert normalise_reply(reply(reasoning_details=details)) == WANTED | {"reasoning_details": details}


def test_different_parts_are_joined_by_a_blank_line_and_what_was_said_already_is_not_said_again():
    received = reply(
        "<think>d</think>4",
        reasoning="a",
        reasoning_content="b",
        reasoning_details=[{"summary": [{"type": "summary_text", "text": "c"}]}, {"text": "a"}],
    )
    assert normalise_reply(received)["reasoning"] == "a\n\nb\n\nc\n\nd"


def test_what_the_provider_streamed_in_pieces_beside_the_whole_is_not_repeated():
    details = [{"text": "Let me "}, {"text": "think."}]
    assert normalise_reply(reply(reasoning="Let me think.", reasoning_details=details))["reasoning"] == "Let me think."


def test_a_reply_without_reasoning_is_left_as_it_is():
    for content in ("4", "  4 \n", "", None, "a < b", "<b>4</b>", [{"type": "image_url", "image_url": {"url": "u"}}]):
        assert normalise_reply(reply(content)) == reply(content)
    assert normalise_reply(reply(reasoning=None, reasoning_content="")) == reply()


def test_an_empty_think_block_is_no_reasoning_and_no_content():
    assert normalise_reply(reply("<think>\n\n</think>\n\n4")) == reply("4")


def test_a_thought_that_was_cut_off_is_reasoning():
    assert normalise_reply(reply("<think>half a th")) == reply("", reasoning="half a th")
    assert normalise_reply(reply("I look.\n<think>half a th")) == reply("I look.", reasoning="half a th")
    assert normalise_reply(reply("<think>a</think><think>half")) == reply("", reasoning="a\n\nhalf")


def test_thoughts_between_texts_are_all_taken_out():
    received = reply("A\n<think>one</think>\nB\n<think>two</think>\nC")
    assert normalise_reply(received) == reply("A\n\nB\n\nC", reasoning="one\n\ntwo")


@pytest.mark.parametrize(
    "content",
    [
        "Put it into `<think>` and `</think>`.",
        "It ends with `</think>`.",
        "The tag <think> opens a thought.",
        "The tag <thinking> opens, </thought> closes.",
    ],
)
def test_a_tag_that_is_only_talked_about_stays(content):
    assert normalise_reply(reply(content)) == reply(content)


def test_a_lone_closing_tag_is_text_where_the_server_has_taken_the_reasoning_out_already():
    assert normalise_reply(reply("a</think>b", reasoning="r")) == reply("a</think>b", reasoning="r")


def test_the_rest_of_a_content_list_stays():
    image = {"type": "image_url", "image_url": {"url": "u"}}
    cited = {"type": "text", "text": "<think>r</think>t", "annotations": [1]}
    received = reply([{"type": "thinking", "thinking": "q"}, cited, image])
    assert normalise_reply(received) == reply([cited | {"text": "t"}, image], reasoning="q\n\nr")
    assert normalise_reply(reply([{"type": "thinking", "thinking": "q"}])) == reply("", reasoning="q")


@pytest.mark.parametrize("arguments", ['{ "a":1 ,"a":2}', "{broken", "", '{"x": "<think>1</think>"}', "\ud800"])
def test_arguments_stay_the_string_that_was_received(arguments):
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    assert normalise_reply(reply("<think>r</think>", tool_calls=calls))["tool_calls"] == calls


class Reply:
    """What an SDK hands out: an object with pydantic's `model_dump`."""

    def __init__(self, **fields):
        self.fields = fields

    def model_dump(self, *, mode, exclude_unset):
        assert (mode, exclude_unset) == ("json", True)
        return self.fields


def test_an_sdks_object_is_read_like_a_dict():
    assert normalise_reply(Reply(role="assistant", content="4", reasoning_content="2+2")) == WANTED


@pytest.mark.parametrize("wrong", ["text", 3, ["a"]])
def test_what_is_no_message_is_refused(wrong):
    with pytest.raises(BadMessage):
        normalise_reply(wrong)


TAGS = [
    "<think>",
    "</think>",
    "<thought>",
    "</thought>",
    "`",
    "\n",
    "<REASONING_SCRATCHPAD>",
    "</Reasoning_Scratchpad>",
]
TAGGED = st.lists(st.sampled_from(TAGS) | texts(2), max_size=8).map("".join)


@given(messages(), TAGGED)
def test_normalising_never_changes_its_input_nor_any_field_but_content_and_reasoning(message, content):
    message = message | {"content": content, "reasoning_details": [{"type": [], "text": content}]}
    before = copy.deepcopy(message)
    normal = normalise_reply(message)
    assert message == before
    assert {key: value for key, value in normal.items() if key not in ("content", "reasoning")} == {
        key: value for key, value in before.items() if key not in ("content", "reasoning")
    }


@given(TAGGED)
def test_no_letter_of_a_reply_is_lost(content):
    normal = normalise_reply(reply(content))
    for letter in set(content) - set("</>`") - set("thinkougREASONINGSCRATCHPADreasoningscratchpad_"):
        if not letter.isspace():
            assert letter in normal["content"] + normal.get("reasoning", "")


def test_a_text_of_nothing_but_tags_is_read_in_linear_time():
    start = time.process_time()
    for hostile in (
        "<think>" * 50_000,
        "x<think>" * 50_000,
        "</think>" * 50_000,
        "<think>" * 50_000 + "</thought>",
    ):
        normalise_reply(reply(hostile))
    assert time.process_time() - start < 5


def test_content_is_read_as_one_text_with_an_image_as_a_word():
    image = {"type": "image_url", "image_url": {"url": "data:…"}}
    assert text_of([{"type": "text", "text": "look"}, image, "here"]) == "look\n[image]\nhere"
    assert text_of([{"type": "input_audio", "input_audio": {}}]) == "[audio]"
    assert text_of([{"type": "refusal", "refusal": "no"}]) == "no"
    assert text_of([{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}]) == "a"
    assert text_of([{"type": "odd", "x": 1}]) == '{"type": "odd", "x": 1}'
    assert text_of(None) == ""
    assert text_of({"k": 1}) == '{"k": 1}'


def test_hermes_own_envelope_for_pictures_is_read_as_hermes_reads_it():
    parts = [{"type": "text", "text": "t"}, {"type": "image_url"}, {"type": "text", "text": "u"}]
    assert text_of({"_multimodal": True, "content": parts}) == "t\nu"
    assert text_of({"_multimodal": True, "content": parts, "text_summary": "S"}) == "S"
    assert text_of({"_multimodal": True, "content": []}) == "[multimodal tool result]"
