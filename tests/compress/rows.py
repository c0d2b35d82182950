"""Random conversations, a counter of words, and scripted summaries: what the tests of compression share."""

import asyncio

from stemma.compress.apply import Compressor
from stemma.compress.counting import Framed
from stemma.compress.passes import Counted
from stemma.compress.plan import Protection
from stemma.compress.settings import Compression, Output, Processing, Settings
from stemma.compress.stream import counted, job
from stemma.compress.summary import ModelSummarizer
from stemma.models.errors import EndpointFailed
from stemma.models.retry import Retries
from stemma.models.scripted import ScriptedModel


class Words(Framed):
    """A word is a token."""

    name = "words"

    async def count(self, texts):
        return [len(text.split()) for text in texts]


def words(count, start=0):
    return " ".join(f"w{i}" for i in range(start, start + count))


def turn(role, count, start=0):
    return {"from": role, "value": words(count, start)}


def agentic(steps=10, size=100):
    """system, human, then calls and results, and the answer."""
    conversation = [turn("system", 10), turn("human", 10)]
    for step in range(steps):
        conversation += [turn("gpt", 10, step), turn("tool", size - 10, step)]
    return [*conversation, turn("gpt", 10)]


def settings(target=300, summary=30, *, protection=None, output=None, processing=None, **sections):
    return Settings(
        compression=Compression(target_max_tokens=target, summary_target_tokens=summary),
        protected_turns=protection or Protection(),
        output=output or Output(summary_notice_text=" (summarised)"),
        processing=processing or Processing(),
        **sections,
    )


async def no_wait(seconds):
    await asyncio.sleep(0)


def model_summarizer(script, *, attempts=2, **more):
    model = ScriptedModel(script, **more)
    retries = Retries(attempts=attempts, first=0.001)
    summarizer = ModelSummarizer(model, retries=retries, sleep=no_wait, chance=lambda: 0.0)
    return summarizer, model


def saying(count):
    """A model whose summaries have so many words."""
    return model_summarizer(lambda request: words(count))[0]


def failing():
    def fail(request):
        raise EndpointFailed("busy", status=503)

    return model_summarizer(fail)[0]


async def count_row(items, beside="", counter=None) -> Counted:
    return (await counted([job(items, None, beside)], counter or Words()))[0]


def compress(items, how, summarizer, counter=None):
    """One conversation, all the way."""

    async def run():
        counter_ = counter or Words()
        return await Compressor(how, counter_).compress(await count_row(items, counter=counter_), summarizer)

    return asyncio.run(run())
