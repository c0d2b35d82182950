"""Which tokens a grammar forced, and what it cut: by the grammars of replies, and by what llama.cpp samples."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded import smollm2
from stemma.core.call import unpack_ids
from stemma.core.sampler import forced_of, sampler_of
from stemma.models.errors import Refused
from stemma.models.forced import walk
from stemma.models.grammar import reply_grammar
from stemma.models.protocol import Request

TOOLS = [
    {
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "mode": {"enum": ["r", "rw"]}, "n": {"type": "integer"}},
                "required": ["path", "mode"],
            },
        }
    }
    for name in ("read", "remove")
]


def marked(grammar, text, *, ended=True):
    """The text with each run of forced characters in brackets, one character a token; ⏹ for the end."""
    pieces = [*text, *([""] if ended else [])]
    told = [*text.replace("\n", "⏎"), *(["⏹"] if ended else [])]
    walked = walk(grammar, pieces, ended=ended)
    for start, end in reversed(walked.forced):
        told[start:end] = ["[", *told[start:end], "]"]
    return "".join(told)


def test_tags_are_forced_and_what_the_model_says_between_them_is_not():
    text = "<think>\nwell\n</think>\nyes"
    assert marked(reply_grammar(None), text) == "[<think>⏎]well⏎</[think>⏎]yes⏹"  # a thought may go on: < 3
    assert marked(reply_grammar(None, tight=True), text) == "[<think>⏎]well⏎[</think>⏎]yes⏹"
    assert walk(reply_grammar(None), [*text, ""], ended=True).cuts == []


def test_of_a_call_the_choices_are_the_models_and_the_rest_is_forced():
    text = (
        '<think>\nso\n</think>\n<tool_call>\n{"name": "read", "arguments": {"path": "a", "mode": "rw"}}\n</tool_call>'
    )
    tight = marked(reply_grammar(TOOLS, tight=True), text)
    called = '<[tool_call>⏎{"name": "re]a[d", "arguments": {"path": "]a"[, "mode": "r]w["}}⏎</tool_call>⏹]'
    assert tight == "[<think>⏎]so⏎[</think>⏎]" + called
    loose = marked(reply_grammar(TOOLS), text)  # which may go on with optional parameters and further calls
    assert loose.endswith('r]w["]}[}⏎</tool_call>]⏹')


def test_a_token_is_forced_only_as_a_whole_and_may_end_inside_a_character():
    grammar = 'root ::= "äb" [xy] "z"'
    pieces = [b"\xc3", b"\xa4b", b"x", b"z", b""]
    assert walk(grammar, pieces, ended=True).forced == [(0, 2), (3, 5)]
    assert walk(grammar, [b"\xc3", b"\xa4bx", b"z"], ended=False).forced == [(0, 1), (2, 3)]


@pytest.mark.parametrize(("length", "cut"), [(159, False), (160, True)])
def test_a_thought_is_cut_where_the_grammar_allows_no_more_of_it(length, cut):
    text = f"<think>\n{'x' * length}\n</think>\nyes"
    walked = walk(reply_grammar(None, tight=True), [*text, ""], ended=True)
    assert walked.cuts == ([8 + length] if cut else [])
    assert ((8 + length) in range(*walked.forced[1])) == cut  # then its last newline was no choice either


@pytest.mark.parametrize(("length", "cut"), [(240, False), (241, True)])
def test_so_is_an_answer(length, cut):
    text = f"<think>\nx\n</think>\n{'y' * length}"
    assert bool(walk(reply_grammar(None, tight=True), [*text, ""], ended=True).cuts) == cut


def test_a_reply_that_max_tokens_cut_has_no_forced_end():
    assert marked(reply_grammar(None), "<think>\nwe", ended=False) == "[<think>⏎]we"


def test_of_a_text_that_is_not_of_the_grammar_only_the_beginning_is_known():
    assert marked(reply_grammar(None), "<thought>\n") == "[<th]ought>⏎⏹"


@given(st.text("ab<>\n", max_size=12), st.booleans())
def test_any_text_can_be_walked(text, ended):
    grammar = 'root ::= ( "a" | "ab" )* ( "<" [^>]{0,2} ">" )? [ab]{2} | "\\n"+'
    runs = walk(grammar, [*text, ""], ended=ended).forced
    assert all(0 <= start < end <= len(text) + 1 for start, end in runs)
    assert all(end < start for (_, end), (start, _) in pairwise(runs))


def test_a_long_reply_can_be_walked():
    text = "<think>\n" + "so it goes on and on; " * 500 + "\n</think>\n" + "and on. " * 500
    assert len(walk(reply_grammar(TOOLS), [*text, ""], ended=True).forced) == 2


@pytest.fixture(scope="module")
def model():
    found = smollm2(params={"repeat_penalty": 1.1, "seed": 3, "max_tokens": 200})
    yield found
    asyncio.run(found.close())


def reply_of(model, text, tools=None):
    asked = Request(messages=[{"role": "user", "content": text}], tools=tools)
    return asyncio.run(model.reply(asked))


def test_the_embedded_model_says_how_it_was_sampled(model):
    call = reply_of(model, "What is the capital of France?").call
    assert call.extra["sampler"] == {
        "temperature": 0.3, "top_p": 0.95, "top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "logprobs": "model",
    }  # fmt: skip
    sampler = sampler_of(call)
    assert (sampler.constrained, sampler.adjusted, sampler.free) == (True, ("repeat_penalty",), False)
    assert call.extra["constraint"]["tight"]


def test_what_was_forced_is_the_frame_of_the_reply_and_nothing_the_model_said(model):
    call = reply_of(model, "What is the capital of France?").call
    runs = forced_of(call)
    ids = unpack_ids(call.sampled_ids)
    assert runs[0][0] == 0
    said = asyncio.run(_texts(model, [list(ids[start:end]) for start, end in runs]))
    assert said[0].startswith("<think>\n")
    assert "think>\n" in said[1]


async def _texts(model, runs):
    async with model._engine.connect() as engine:
        return [(await engine.post("/detokenize", {"tokens": run}))["content"] for run in runs]


def test_a_reply_whose_thought_the_grammar_cut_ends_with_length(model):
    reply = reply_of(model, "Explain gravity with all you know, at great length.")
    thought = reply.message["reasoning"]
    assert len(thought) == 160
    assert reply.call.finish_reason == "length"
    assert (reply.call.extra.get("cut") == "thought") == (len(reply.message["content"]) < 241)


@pytest.mark.parametrize("name", ["grammar", "json_schema"])
def test_a_constraint_that_would_have_no_effect_is_refused(model, name):
    asked = Request(messages=[{"role": "user", "content": "Hi"}], params={name: "root ::= [a]"})
    with pytest.raises(Refused, match=f"{name} cannot be set"):
        asyncio.run(model.reply(asked))
