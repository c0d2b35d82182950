"""One run: how to compress, what counts, who summarises, and the account of it."""

from collections.abc import Callable

from stemma.compress.apply import Compressor
from stemma.compress.counting import Counter
from stemma.compress.report import Report
from stemma.compress.settings import Settings
from stemma.compress.summary import Summarizer

OnRow = Callable[[], None]
"""Told of each row that is done."""


class Run:
    """What every part of a run needs."""

    def __init__(
        self, settings: Settings, counter: Counter, summarizer: Summarizer, on_row: OnRow = lambda: None
    ) -> None:
        self.settings, self.counter, self.summarizer, self.on_row = settings, counter, summarizer, on_row
        self.compressor = Compressor(settings, counter)
        self.report = Report(
            tokenizer=counter.name, summarizer=summarizer.name, target=settings.compression.target_max_tokens
        )
