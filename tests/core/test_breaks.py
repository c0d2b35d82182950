"""Breaks are decided by tokens, and their cause is told by what happened to the messages."""

from stemma.core.breaks import breaks
from stemma.core.token_calls import captured
from token_conversations import Chat, offered, user


def found(chat):
    """Each break as its cause and the words that differ first."""
    text = {number: word for word, number in chat.words.known.items()}
    return [(one.cause, text.get(one.was), text.get(one.now)) for one in breaks(captured(chat.graph))]


def test_a_line_that_only_grows_has_no_break():
    chat = Chat(user("hi")).says("hello").hears("and").says("yes").hears("ok").says("bye")
    assert found(chat) == []


def test_an_edit_is_named_with_the_first_token_that_differs():
    chat = Chat(user("hi there")).says("hello")
    chat.graph[0]["content"] = "hi you"
    assert found(chat.hears("and").says("yes")) == [("edit", "there", "you")]


def test_a_compaction_is_called_what_the_user_called_it():
    chat = Chat(user("hi")).says("hello").hears("and").says("yes")
    with chat.graph.edit(reason="compaction"):
        chat.graph[0:2] = [user("summary")]
    assert found(chat.hears("go").says("on")) == [("compaction", "hi", "summary")]


def test_the_same_context_asked_again_is_a_resample_where_no_token_differs():
    chat = Chat(user("hi")).says("hello")
    chat.graph.pop()
    chat.says("hey")
    [one] = breaks(captured(chat.graph))
    assert (one.cause, one.now, one.at) == (
        "resample",
        None,
        len(chat.prompt()) - len(chat.words("<assistant> hey </>")),
    )


def test_other_tools_are_named_as_the_cause():
    chat = Chat(user("hi")).says("hello", tools=offered("read")).hears("and").says("yes", tools=offered("write"))
    assert found(chat) == [("tools changed", "tool:read", "tool:write")]


def test_a_template_that_leaves_thoughts_out_is_found_at_the_first_thought_it_leaves_out():
    chat = Chat(user("hi"), strip_thinking=True)
    chat.says("hello", reasoning="hmm").hears("r", role="tool", tool_call_id="1").says("more", reasoning="well")
    assert found(chat) == []
    chat.hears("and").says("yes")
    assert found(chat) == [("thinking stripped", "hmm", "hello")]


def test_the_same_reply_in_other_tokens_is_called_re_tokenised():
    chat = Chat(user("hi")).says("hello")
    chat.words.known["hello"] = 999  # from now on the same text is another token
    assert [cause for cause, *_ in found(chat.hears("and").says("yes"))] == ["re-tokenised"]


def test_calls_without_tokens_say_nothing_about_breaks():
    chat = Chat(user("hi")).says("hello", tokens=False).hears("and").says("yes")
    assert found(chat) == []


def test_a_subagents_first_call_breaks_nothing():
    parent = Chat(user("hi")).says("ask", reasoning="")
    child = Chat(user("task"), words=parent.words).says("done")
    parent.graph.append({"role": "tool", "tool_call_id": "1", "content": "done"}, contains=child.graph)
    assert found(parent.says("fine")) == []


def test_what_was_recorded_before_is_known_by_messages_and_by_time():
    chat = Chat(user("hi")).says("one").hears("and").says("two")
    chat.graph[-1]["content"] = "edited"  # the second call leaves the line; the first stays in its context
    first, second, third = captured(chat.hears("so").says("three").graph)
    assert (first.before, first.previous, first.left) == (None, None, None)
    assert (second.before, second.previous, second.left) == (0, 0, None)
    assert (third.before, third.previous, third.left) == (0, 1, "edit")
