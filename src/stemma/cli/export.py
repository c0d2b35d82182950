"""`stemma export`: rows for a trainer, with an account of every row. `tests/cli/test_export.py` runs it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stemma.cli.options import JsonOption, reading
from stemma.cli.screen import Screen, cut
from stemma.errors import BadRecord, StoreMissing

if TYPE_CHECKING:
    from stemma.formats.export import Report
    from stemma.formats.training import TrainingRow

_STORE = "stemma.db"


def export(
    source: Annotated[str, typer.Argument(help="A store, a run's folder, or a file or folder of trajectories.")],
    trainer: Annotated[
        str, typer.Option("--for", metavar="TRAINER", help="hermes, openai, trl, axolotl, tokens, atropos, …")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to, or the data file itself.")],
    run: Annotated[str | None, typer.Option(help="Only the graphs of this run.")] = None,
    allow_markers: Annotated[
        bool, typer.Option("--allow-markers", help="Write rows whose text carries control markers, too.")
    ] = False,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json to count and show tokens with.")] = None,
    model: Annotated[str | None, typer.Option(help="Tokens: train only the calls of this model.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens: leave out calls that are longer.")] = None,
    with_ephemeral: Annotated[
        bool, typer.Option("--with-ephemeral", help="Tokens: train calls made under an ephemeral prompt, as sampled.")
    ] = False,
    distill: Annotated[
        bool, typer.Option("--distill", help="Tokens: train them without that prompt; marked as off-policy.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write training data that loads in TRAINER.

    Every sampled message is trained exactly once, in the context it was sampled in. What is left out is counted,
    with its reason and one example. The same source gives the same bytes. For tokens, atropos, trl-grpo, verl, slime,
    skyrl, tinker and tree the rows are token ids as the engine gave them, and `stemma verify` proves them.
    """
    from stemma.formats import export as writing
    from stemma.formats.counting import token_counter
    from stemma.formats.presets import preset
    from stemma.formats.token_presets import token_preset

    if tokens := token_preset(trainer):
        from stemma.cli.export_tokens import Wish, export_tokens

        wish = Wish(
            source=path_of(source),
            out=out,
            run=run,
            model=model,
            max_length=max_length,
            with_ephemeral=with_ephemeral,
            distill=distill,
            tokenizer=tokenizer,
        )
        export_tokens(wish, tokens, json=json)
        return
    wanted = preset(trainer)
    count = token_counter(tokenizer) if tokenizer else None
    report = writing.export(rows_of(source, run), wanted, out, allow_markers=allow_markers, count_tokens=count)
    if json:
        import msgspec

        Screen().json(msgspec.to_builtins(report))
    else:
        _print(report)


def rows_of(source: str, run: str | None) -> "Iterator[TrainingRow | BadRecord]":
    """The rows of a store, of the store in a run's folder, or of trajectory files."""
    path = path_of(source)
    return _of_store(path, run) if path.suffix == ".db" else _of_files(path)


def path_of(source: str) -> Path:
    """The store or the files that are meant."""
    path = Path(source)
    if path.is_dir() and (path / _STORE).exists():
        path = path / _STORE
    if not path.exists():
        raise StoreMissing(f"there is no {source}; give a store, a run's folder, or trajectory files")
    return path


def _of_store(path: Path, run: str | None) -> "Iterator[TrainingRow]":
    from stemma.formats.training import rows_of_graph

    with reading(str(path)) as store:
        shared, trained = store.shared_events(), set[object]()
        for name in store.names(run):  # not `graphs`, which would hold the metadata of all of them
            graph = store.load(name)
            yield from rows_of_graph(graph, store.metadata(name), trained)
            if shared:  # a reply that forks share is trained in the first of them
                trained |= shared & graph.events()


def _of_files(path: Path) -> "Iterator[TrainingRow | BadRecord]":
    from stemma.formats.files import load_trajectories
    from stemma.formats.training import row_of_entry

    bad: list[BadRecord] = []
    for number, entry in enumerate(load_trajectories(path, on_bad=bad.append), 1):
        yield from bad
        bad.clear()
        try:
            yield row_of_entry(entry, f"{path}#{number}")
        except BadRecord as problem:
            yield problem
    yield from bad


def _print(report: "Report") -> None:
    screen = Screen()
    tokens = "" if report.tokens is None else f", {report.tokens:,} tokens"
    screen.line(
        (report.file, "bold"), f": {report.written:,} rows, {report.trained_messages:,} trained messages{tokens}"
    )
    for path in report.sidecars:
        screen.line(("  beside it  ", "dim"), path)
    if report.off_policy:
        told = f"{report.off_policy:,} rows whose ephemeral prompt the model saw and the text leaves out"
        screen.line(("  off-policy ", "yellow"), told)
    for reason, met in sorted(report.left_out.items()):
        screen.line(
            ("  left out   ", "yellow"), f"{met.count:,} × {reason}", (f"  e.g. {met.example}: {met.detail}", "dim")
        )
    if report.sample is not None:
        screen.line(("  sample     ", "dim"), cut(_one_line(report.sample), 400))


def _one_line(row: dict[str, Any]) -> str:
    import json

    return json.dumps(row, ensure_ascii=False)
