"""Passes: more follow when one is not enough, none is wasted, and what fails changes nothing."""

import asyncio

from compress.rows import agentic, compress, failing, model_summarizer, saying, settings, turn, words
from stemma.compress.plan import Protection
from stemma.compress.settings import Processing
from stemma.models.errors import EndpointFailed


def test_the_middle_becomes_one_human_turn_and_the_ends_stay():
    items = agentic()
    made = compress(items, settings(target=700, summary=30), saying(20))
    assert [i["from"] for i in made.items[:6]] == ["system", "human", "gpt", "tool", "human", "gpt"]
    assert made.items[4]["value"] == "[CONTEXT SUMMARY]: " + words(20)
    assert made.items[0]["value"] == items[0]["value"] + " (summarised)"
    assert made.items[1:4] == items[1:4]
    assert made.items[5:] == items[-len(made.items[5:]) :]
    assert made.metrics.compressed_tokens <= 700
    assert made.metrics.compressed_tokens > 600, "no more than needed is cut"


def test_a_summary_longer_than_expected_is_followed_by_a_pass_that_cuts_more():
    summarizer, model = model_summarizer(lambda request: words(100))
    made = compress(agentic(), settings(target=700, summary=30), summarizer)
    assert len(model.requests) == 2
    assert made.metrics.compressed_tokens <= 700
    assert made.metrics.api_calls == 2


def test_when_nothing_more_can_be_cut_a_shorter_summary_is_asked_for():
    def answer(request):
        asked = request.params["max_tokens"] // 2
        return words(asked + 20)

    summarizer, model = model_summarizer(answer)
    made = compress(agentic(6), settings(target=380, summary=80), summarizer)
    asked = [request.params["max_tokens"] for request in model.requests]
    assert asked == [160, 80, 40]
    assert made.metrics.compressed_tokens <= 380


def test_a_row_that_cannot_be_brought_under_the_target_says_why_and_is_asked_about_once():
    summarizer, model = model_summarizer(lambda request: "short")
    made = compress(agentic(), settings(target=50), summarizer)
    assert made.metrics.still_over_limit
    assert made.metrics.why == "what is protected has 330 tokens; the target is 50"
    assert len(model.requests) == 1

    alone = compress([turn("human", 500)], settings(target=50), saying(5))
    assert alone.metrics.why == "every turn is protected, or belongs to one that is"


def test_a_summary_that_saves_nothing_is_not_used():
    items = agentic(6)
    made = compress(items, settings(target=400, summary=30), saying(10_000))
    assert made.items == items
    assert made.metrics.still_over_limit
    assert "too long" in made.metrics.why


def test_a_summary_that_fails_leaves_the_row_as_it_was():
    items = agentic()
    made = compress(items, settings(), failing())
    assert made.items == items
    assert made.metrics.failed
    assert "busy" in made.metrics.why
    assert (made.metrics.api_calls, made.metrics.api_errors) == (2, 2)


def test_a_failure_that_passes_is_asked_again_and_told():
    replies = iter([EndpointFailed("busy", status=503), "", "fine"])

    def answer(request):
        line = next(replies)
        if isinstance(line, Exception):
            raise line
        return line

    summarizer, _ = model_summarizer(answer, attempts=3)
    made = compress(agentic(), settings(target=700), summarizer)
    assert made.metrics.was_compressed
    assert (made.metrics.api_calls, made.metrics.api_errors) == (3, 2)


def test_a_row_that_takes_too_long_is_kept_and_counts_as_failed():
    async def slow(request):
        await asyncio.sleep(60)

    how = settings(processing=Processing(per_trajectory_timeout=0.02))
    made = compress(agentic(), how, model_summarizer(slow)[0])
    assert made.metrics.failed
    assert made.metrics.why == "it took longer than 0.02 s"
    assert made.items == agentic()


def test_rows_on_both_sides_of_a_protected_turn_get_two_summaries():
    roles = ["system", "human", "gpt", *["human", "gpt"] * 4, "gpt", "tool", *["human", "gpt"] * 4]
    made = compress(
        [turn(role, 50) for role in roles], settings(target=400, protection=Protection(last_n_turns=1)), saying(9)
    )
    assert sum(item["value"].startswith("[CONTEXT SUMMARY]:") for item in made.items) == 2
    assert made.metrics.compressed_tokens <= 400
