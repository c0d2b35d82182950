"""Summaries: the question fits the window, the answer carries its prefix once, and nothing else is taken for one."""

import asyncio
import json

import pytest

from compress.rows import model_summarizer, words
from stemma.compress.errors import NoSummary
from stemma.compress.extractive import ExtractiveSummarizer
from stemma.compress.plan import Turn
from stemma.compress.summary import PREFIX, middle_out, prompt
from stemma.formats.markers import markers_in
from stemma.models.errors import ContextTooLong, Refused

TURNS = [Turn("gpt", words(2000)), Turn("tool", words(2000, 5000))]


def summarise(script, turns=TURNS, tokens=100, **more):
    summarizer, model = model_summarizer(script, **more)
    return asyncio.run(summarizer.summarise(turns, tokens)), model


@pytest.mark.parametrize("said", ["Done.", "[CONTEXT SUMMARY]: Done.", "  [CONTEXT SUMMARY]:Done. \n"])
def test_the_prefix_stands_once(said):
    summary, _ = summarise([said])
    assert summary.text == f"{PREFIX} Done."


@pytest.mark.parametrize("empty", ["", "  \n", "[CONTEXT SUMMARY]:", "```\n```", {"content": None}])
def test_an_empty_answer_is_asked_again_and_is_never_a_summary(empty):
    summary, model = summarise([empty, "Done."])
    assert (summary.calls, summary.errors) == (2, 1)
    with pytest.raises(NoSummary, match="empty"):
        summarise([empty, empty])
    assert len(model.requests) == 2


def test_long_turns_are_shown_without_their_middle():
    asked = prompt(TURNS, 100)
    assert "[1 gpt]" in asked
    assert "[2 tool]" in asked
    assert "about 100 tokens" in asked
    assert len(asked) < 2 * 3000 + 1500
    assert middle_out("short", 10) == "short"


def test_the_question_fits_the_window_of_a_small_model():
    many = [Turn("tool", words(500))] * 40
    _, model = summarise(["Done."], many, 100, context_window=4096)
    question = model.requests[0].messages[0]["content"]
    assert len(question) / 3 + model.requests[0].params["max_tokens"] <= 4096


def test_a_question_that_is_too_long_after_all_is_asked_with_less_of_each_turn():
    def answer(request):
        if len(request.messages[0]["content"]) > 2500:
            raise ContextTooLong("too long", status=400)
        return "Done."

    summary, model = summarise(answer)
    lengths = [len(request.messages[0]["content"]) for request in model.requests]
    assert lengths == sorted(lengths, reverse=True)
    assert summary.errors == len(lengths) - 1 > 0

    def never(request):
        raise ContextTooLong("too long", status=400)

    with pytest.raises(NoSummary, match="too long"):
        summarise(never)


def test_what_asking_again_would_not_change_is_not_asked_again():
    summarizer, model = model_summarizer(lambda request: (_ for _ in ()).throw(Refused("no", status=400)), attempts=5)
    with pytest.raises(NoSummary) as problem:
        asyncio.run(summarizer.summarise(TURNS, 10))
    assert len(model.requests) == problem.value.calls == 1


def test_no_summary_can_open_a_tool_call():
    summary, _ = summarise(["He wrote <tool_call> and <|im_end|>."])
    assert markers_in(summary.text) == []


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def result(content):
    return f"<tool_response>\n{json.dumps({'tool_call_id': '1', 'name': 'x', 'content': content})}\n</tool_response>"


WORK = [
    Turn("gpt", "<think>\nhm\n</think>\nI run the tests.\n" + call("terminal", command="pytest -q")),
    Turn("tool", result({"output": "FAILED test_a - KeyError: 'x'", "exit_code": 1})),
    Turn("gpt", call("write_file", path="src/a.py", content="x = 1")),
    Turn("tool", "<tool_response>\n42 bytes written\n</tool_response>"),
    Turn("human", "And now?"),
]


def extract(turns, tokens=750):
    return asyncio.run(ExtractiveSummarizer().summarise(turns, tokens)).text


def test_an_extractive_summary_tells_actions_files_commands_errors_and_results():
    text = extract(WORK)
    assert text.startswith(f"{PREFIX} The assistant made 2 calls: terminal ×1, write_file ×1.")
    for told in ("pytest -q", "src/a.py", "KeyError: 'x'", "42 bytes written", "I run the tests.", "And now?"):
        assert told in text
    assert "hm" not in text.split(), "thoughts are left out"
    assert extract(WORK) == text


def test_an_extractive_summary_is_as_short_as_asked_and_has_something_of_each_kind():
    many = [Turn(t.role, t.text.replace("src/a.py", f"src/{i}.py")) for i in range(200) for t in WORK]
    for tokens in (60, 200, 750):
        text = extract(many, tokens)
        assert len(text) <= tokens * 3 + 100
        assert "Files:" in text
    assert "KeyError" in extract(many, 200)


def test_hostile_turns_are_summarised_in_no_time():
    hostile = [Turn("gpt", "<tool_call>{" * 20_000), Turn("tool", "<think>" * 20_000), Turn("gpt", "x" * 10**6)]
    text = extract(hostile)
    assert markers_in(text) == []
    assert extract([Turn("tool", "")]) == f"{PREFIX} 1 turns without tool calls."
