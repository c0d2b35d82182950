"""`stemma compress`: long trajectories to a token budget. `tests/cli/test_compress.py` runs it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from stemma.cli.options import JsonOption
from stemma.errors import StoreMissing

if TYPE_CHECKING:
    from stemma.compress.report import Forecasts, Report
    from stemma.compress.sampling import Sample
    from stemma.compress.settings import Settings

_STORE = "stemma.db"


class Outcome(NamedTuple):
    """What a run, or a dry one, has come to."""

    report: "Report"
    forecasts: "Forecasts | None"
    outputs: list[str]
    problems: list[str]


def compress(
    source: Annotated[Path, typer.Argument(help="A trajectory file, a folder of them, a store, or a run's folder.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file or folder to write; else the source's name + _compressed."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings, as in configs/trajectory_compression.yaml.", exists=True)
    ] = None,
    budget: Annotated[int | None, typer.Option(min=1, metavar="TOKENS", help="What a trajectory may have.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="A tokenizer.json or its folder, a hub id, a GGUF, an endpoint's URL, or `estimate`."),
    ] = None,
    summarizer: Annotated[
        Literal["model", "extractive"], typer.Option(help="A model writes the summaries, or they are put together.")
    ] = "model",
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model that summarises.")] = None,
    base_url: Annotated[str | None, typer.Option(metavar="URL", help="Its OpenAI-compatible endpoint.")] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Summaries at once.")] = None,
    run: Annotated[str | None, typer.Option(help="Of a store: only the graphs of this run.")] = None,
    sample_percent: Annotated[float, typer.Option(min=0.0001, max=100, help="Only so much of the rows.")] = 100.0,
    seed: Annotated[int, typer.Option(help="Which sample.")] = 42,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and say what would be done and cost.")] = False,
    json: JsonOption = False,
) -> None:
    """Bring trajectories under a token budget: the first and last turns stay, the middle becomes a summary.

    Only as much is summarised as it takes. No tool call is parted from its results, and a row that cannot be brought
    under the budget, or whose summary failed, is kept as it is and counted. A run that was killed goes on where it was
    when the same command is given again. In a store the compressed conversation is a new version of the graph.
    """
    import asyncio

    from stemma.cli.compress_report import show
    from stemma.cli.compress_setup import Choices, settings_for
    from stemma.compress.sampling import Sample

    settings = settings_for(config, budget=budget, tokenizer=tokenizer, concurrency=concurrency)
    choices = Choices(summarizer, model, base_url, dry_run)
    outcome = asyncio.run(_compress(_source(source), out, run, settings, choices, Sample(sample_percent, seed), json))
    show(outcome, as_json=json)
    if outcome.report.failed or outcome.problems:
        raise typer.Exit(1)


def _source(path: Path) -> Path:
    if path.is_dir() and (path / _STORE).exists():
        path = path / _STORE
    if not path.exists():
        raise StoreMissing(f"there is no {path}; give a trajectory file, a folder of them, or a store")
    return path


async def _compress(
    source: Path, out: Path | None, run: str | None, settings: "Settings", choices: Any, sample: "Sample", quiet: bool
) -> Outcome:
    from stemma.cli.compress_setup import opened

    async with opened(settings, choices, quiet=quiet) as tools:
        if source.suffix == ".db":
            return await tools.compress_store(source, out, run, sample)
        return await tools.compress_files(source, out, sample)
