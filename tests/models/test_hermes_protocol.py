"""Promises of the hermes tool protocol: what is read from a text is what was written as it."""

import json

from hypothesis import given
from hypothesis import strategies as st

from stemma.models.hermes_protocol import as_text_messages, fresh_nonce, read_reply

words = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cc", "Cs", "Z"]), min_size=1)
functions = st.builds(
    lambda name, arguments: {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
    words,
    st.dictionaries(words, words | st.integers() | st.booleans(), max_size=3),
)


def reply(reasoning, content, called):
    calls = [{"id": f"call_7_{n}", "type": "function", "function": function} for n, function in enumerate(called)]
    message = {"role": "assistant", "content": content, "reasoning": reasoning}
    return {**message, "tool_calls": calls} if calls else message


@given(st.builds(reply, words, words, st.lists(functions, max_size=3)))
def test_reading_inverts_writing(message):
    (written,) = as_text_messages([message], None)
    assert written["role"] == "assistant"
    assert read_reply(written["content"], "7") == message


def test_a_reply_that_was_cut_is_read_as_far_as_it_goes():
    assert read_reply("<think>\nIs it", "0") == {"role": "assistant", "content": "", "reasoning": "Is it"}
    half = read_reply('<think>\nI look.\n</think>\n<tool_call>\n{"name": "l', "0")
    assert half == {"role": "assistant", "content": '<tool_call>\n{"name": "l', "reasoning": "I look."}


def test_the_conversations_own_system_message_stands_below_the_prompt_of_the_tools():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert as_text_messages(messages, None) == messages
    with_tools = as_text_messages(messages, [{"function": {"name": "ls"}}])
    assert '"name": "ls"' in with_tools[0]["content"]
    assert with_tools[0]["content"].endswith("\n\nBe brief.")
    assert as_text_messages(messages[1:], None) == messages[1:]


def test_the_ids_of_calls_are_new_in_a_conversation_that_became_shorter():
    called = reply("I look.", None, [{"name": "ls", "arguments": "{}"}])
    assert fresh_nonce([{"role": "user", "content": "Hi"}]) == "1"
    assert fresh_nonce([called] * 7) == "8"
