"""What `stemma compress` works with: settings, a tokenizer, a summarizer and a progress bar, opened and closed."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stemma.cli.choosing import NoModel, choose_model
from stemma.cli.compress import Outcome
from stemma.cli.settings import load_settings
from stemma.compress.counters import open_counter
from stemma.compress.errors import OutputThere
from stemma.compress.extractive import ExtractiveSummarizer
from stemma.compress.files import Source, compress_files, forecast_files
from stemma.compress.report import Forecasts
from stemma.compress.run import Run
from stemma.compress.sampling import Sample
from stemma.compress.settings import Settings, Summarization, changed, settings_of
from stemma.compress.stores import Graphs, compress_graphs, forecast_graphs
from stemma.compress.summary import ModelSummarizer, Summarizer
from stemma.formats.yaml_files import read_yaml, value_of
from stemma.models.prices import Prices, cost_of
from stemma.models.protocol import Model
from stemma.models.retry import Retries
from stemma.redact import without_secrets
from stemma.store import open_store

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Choices(NamedTuple):
    """What the flags say of the summarizer."""

    summarizer: str
    model: str | None
    base_url: str | None
    dry_run: bool


def settings_for(
    config: Path | None, *, budget: int | None, tokenizer: str | None, concurrency: int | None
) -> Settings:
    """The settings of a file, or the defaults, with what the flags change."""
    settings = Settings()
    if config is not None:
        node = read_yaml(config.read_bytes(), str(config))
        settings = settings_of(None if node is None else value_of(node, str(config)), str(config))
    return msgspec.structs.replace(
        settings,
        tokenizer=changed(settings.tokenizer, name=tokenizer),
        compression=changed(settings.compression, target_max_tokens=budget),
        processing=changed(settings.processing, max_concurrent_requests=concurrency),
    )


@asynccontextmanager
async def opened(settings: Settings, choices: Choices, *, quiet: bool) -> AsyncIterator["Tools"]:
    """Everything ready to compress with; closed again when the block ends."""
    model = None if choices.summarizer == "extractive" or choices.dry_run else _model(settings, choices)
    try:
        counter = await open_counter(
            settings.tokenizer.name, hub=_hub(), trust_remote_code=settings.tokenizer.trust_remote_code
        )
        try:
            with _progress(quiet) as progress:
                task = progress.add_task("compress", total=None)
                summarizer = _summarizer(model, settings)
                run = Run(settings, counter, summarizer, lambda: progress.advance(task))
                yield Tools(run, progress, choices)
        finally:
            await counter.close()
    finally:
        if model is not None:
            await model.close()


class Tools:
    """Compresses files and stores, really or as a forecast."""

    def __init__(self, run: Run, progress: Progress, choices: Choices) -> None:
        self._run, self._progress, self._choices = run, progress, choices

    async def compress_files(self, path: Path, out: Path | None, sample: Sample) -> Outcome:
        source = Source(path, sample)
        self._progress.update(self._progress.task_ids[0], total=source.rows())
        if self._choices.dry_run:
            forecasts = self._priced(await forecast_files(source, self._run))
            return Outcome(self._run.report, forecasts, [], [str(bad) for bad in source.unreadable])
        identity = self._identity(sample) | {"files": [_stamp(file) for file in source.files]}
        files = await compress_files(source, out, self._run, identity)
        written = [path for target in files.targets for path in target.files if path.exists()]
        outputs = [str(path) for path in (*written, files.report) if path.exists()]
        return Outcome(self._run.report, None, outputs, [str(bad) for bad in source.unreadable])

    async def compress_store(self, path: Path, out: Path | None, run: str | None, sample: Sample) -> Outcome:
        if out is not None:
            raise OutputThere("a store is compressed in place, as new versions of its graphs; leave out -o")
        with open_store(path, create=False) as store:
            graphs = Graphs(store, run, sample)
            self._progress.update(self._progress.task_ids[0], total=graphs.rows())
            if self._choices.dry_run:
                return Outcome(self._run.report, self._priced(await forecast_graphs(graphs, self._run)), [], [])
            report = await compress_graphs(graphs, path.parent, self._run, self._identity(sample))
        return Outcome(self._run.report, None, [str(path), *([str(report)] if report else [])], [])

    def _priced(self, forecasts: Forecasts) -> Forecasts:
        usage = {"prompt_tokens": forecasts.prompt_tokens, "completion_tokens": forecasts.completion_tokens}
        forecasts.cost = cost_of(usage, _prices(self._run.settings, self._choices))
        return forecasts

    def _identity(self, sample: Sample) -> dict[str, Any]:
        """What a run must have in common with the one it takes up."""
        told = {"settings": self._run.settings, "summarizer": self._run.summarizer.name, "sample": sample}
        identity: dict[str, Any] = without_secrets(msgspec.to_builtins(told))
        return identity


def _stamp(file: Path) -> list[Any]:
    found = file.stat()
    return [file.name, found.st_size, found.st_mtime_ns]


def _hub() -> Path:
    """Where the hub's client keeps its files."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def _summarizer(model: Model | None, settings: Settings) -> Summarizer:
    if model is None:
        return ExtractiveSummarizer()
    wanted = settings.summarization or Summarization()
    retries = Retries(attempts=wanted.max_retries, first=wanted.retry_delay)
    return ModelSummarizer(model, temperature=wanted.temperature, retries=retries)


def _model(settings: Settings, choices: Choices) -> Model:
    """The model that the flags name, else that of the compression's settings, else the usual one, else the embedded."""
    usual = load_settings({"model": choices.model})
    if choices.model or choices.base_url or settings.summarization is None:
        return choose_model(usual, usual.get("model") or "local", choices.base_url)
    return _configured(settings.summarization)


def _prices(settings: Settings, choices: Choices) -> Prices | None:
    """What the model would cost, as the config of its name says; what runs on this machine costs nothing."""
    usual = load_settings({"model": choices.model})
    name = usual.get("model")
    from_settings = settings.summarization is not None and not choices.model and not choices.base_url
    if choices.summarizer == "extractive" or (not from_settings and (name or "local") == "local"):
        return Prices(prompt=0, completion=0)
    said = usual.section("models").get(name, {}).get("prices", {}) if not from_settings else {}
    given = {key: value for key, value in said.items() if value is not None}
    return Prices(**given) if given else None


def _configured(wanted: Summarization) -> Model:
    from yarl import URL

    from stemma.models.openai_api import OpenAIModel

    key = os.environ.get(wanted.api_key_env)
    if not key and URL(wanted.base_url).host not in _LOOPBACK:
        where = without_secrets(wanted.base_url)
        raise NoModel(
            f"the key for {where} is to be in the environment variable {wanted.api_key_env}, which is not set"
        )
    return OpenAIModel(wanted.model, wanted.base_url, key, retries=Retries(attempts=1))  # the summarizer asks again


def _progress(quiet: bool) -> Progress:
    """On standard error, and on terminals only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
