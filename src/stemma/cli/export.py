"""`stemma export`: rows for a trainer, with an account of every row. `tests/cli/test_export_import.py` runs it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stemma.cli.options import JsonOption, reading
from stemma.cli.screen import Screen, cut
from stemma.errors import BadRecord, NotFound, StoreMissing

if TYPE_CHECKING:
    from stemma.formats.export import Report
    from stemma.formats.template_check import TemplateInspector
    from stemma.formats.training import Excluded, TextRules, TrainingRow
    from stemma.store import Store

_STORE = "stemma.db"


def export(
    source: Annotated[str, typer.Argument(help="A store, a run's folder, or a file or folder of trajectories.")],
    trainer: Annotated[
        str, typer.Option("--for", metavar="TRAINER", help="hermes, openai, trl, axolotl, tokens, atropos, …")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to, or the data file itself.")],
    run: Annotated[str | None, typer.Option(help="Only the graphs of this run.")] = None,
    model: Annotated[str | None, typer.Option(help="Train only the calls of this model.")] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A tokenizer.json or its folder: count tokens, and report what its chat template drops or adds.",
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Leave out what is longer, in tokens (text: needs --tokenizer).")
    ] = None,
    allow_markers: Annotated[
        bool, typer.Option("--allow-markers", help="Text: write rows whose text carries control markers, too.")
    ] = False,
    keep_truncated: Annotated[
        bool,
        typer.Option("--keep-truncated", help="Text: train replies that were cut off; trainers add an end to them."),
    ] = False,
    keep_broken_calls: Annotated[
        bool, typer.Option("--keep-broken-calls", help="hermes, sharegpt: train calls with broken arguments as {}.")
    ] = False,
    system: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help="hermes: the system prompt to write, generated (default) or own."),
    ] = None,
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
    with its reason and one example. The same source gives the same bytes, and `stemma verify` proves them. For tokens,
    atropos, trl-grpo, verl, slime, skyrl, tinker and tree the rows are token ids as the engine gave them.
    """
    from stemma.formats.token_presets import token_preset

    path = path_of(source)
    _not_into_itself(path, out)
    if tokens := token_preset(trainer):
        from stemma.cli.export_tokens import Wish, export_tokens

        text_only = {
            "--allow-markers": allow_markers,
            "--keep-truncated": keep_truncated,
            "--keep-broken-calls": keep_broken_calls,
            "--system": system,
        }
        _refuse_flags(trainer, "writes tokens as they were sampled", text_only)
        wish = Wish(
            source=path,
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
    from stemma.formats import export as writing
    from stemma.formats.presets import SYSTEMS, preset
    from stemma.formats.training import TextRules

    token_only = {"--with-ephemeral": with_ephemeral, "--distill": distill}
    _refuse_flags(trainer, "leaves ephemeral prompts out and marks such rows as off-policy", token_only)
    if trainer != "hermes":
        _refuse_flags(trainer, "writes the conversation's own system prompt", {"--system": system})
    if trainer not in ("hermes", "sharegpt"):
        _refuse_flags(trainer, "writes arguments as they are or not at all", {"--keep-broken-calls": keep_broken_calls})
    if max_length is not None and tokenizer is None:
        raise typer.BadParameter("--max-length counts tokens: give the model's tokenizer with --tokenizer")
    if system is not None and system not in SYSTEMS:
        raise typer.BadParameter(f"--system is one of {', '.join(SYSTEMS)}; got {system!r}")
    report = writing.export(
        rows_of(path, run, TextRules(model=model, keep_truncated=keep_truncated)),
        preset(trainer, system or "generated"),
        out,
        options=writing.Options(allow_markers=allow_markers, keep_broken_calls=keep_broken_calls),
        inspector=_inspector(tokenizer, max_length),
        version=package_version(),
    )
    if json:
        import msgspec

        Screen().json(msgspec.to_builtins(report))
    else:
        _print(report)
    if path.suffix != ".db" and not report.written and report.left_out.keys() <= {"unreadable"}:
        raise typer.Exit(1)  # nothing in the files could be read
    if model is not None and not report.written and report.left_out.keys() == {"other model"}:
        raise NotFound(f"no reply here is of the model {model!r}; the report lists whose they are")


def _refuse_flags(trainer: str, why: str, given: dict[str, Any]) -> None:
    """A flag that has no effect is an error."""
    for flag, value in given.items():
        if value:
            raise typer.BadParameter(f"{flag} has no effect for {trainer}, which {why}")


def _not_into_itself(source: Path, out: Path) -> None:
    """That no file is read which this export writes: rows would be read again by the next one, or be written over."""
    is_file = out.suffix in (".jsonl", ".parquet")
    folder = (out.parent if is_file else out).resolve()
    written = [out.resolve()] if is_file else [folder / "train.jsonl", folder / "train.parquet"]
    if source.resolve() in (folder, folder / "receipts.jsonl", *written):
        raise typer.BadParameter(
            f"the export would be written into {source}, which it reads; name another place with -o"
        )


def _inspector(tokenizer: Path | None, max_length: int | None) -> "TemplateInspector | None":
    if tokenizer is None:
        return None
    from stemma.formats.template_check import TemplateInspector

    return TemplateInspector(tokenizer, max_length)


def rows_of(path: Path, run: str | None, rules: "TextRules") -> "Iterator[TrainingRow | Excluded | BadRecord]":
    """The rows of a store, or of trajectory files."""
    if path.suffix == ".db":
        with reading(str(path)) as store:  # before anything is written
            names_of(store, run)
        return _of_store(path, run, rules)
    if run is not None:
        raise typer.BadParameter(f"--run has no effect: {path} is no store")
    return _of_files(path, rules)


def path_of(source: str) -> Path:
    """The store or the files that are meant."""
    path = Path(source)
    if path.is_dir() and (path / _STORE).exists():
        path = path / _STORE
    if not path.exists():
        raise StoreMissing(f"there is no {source}; give a store, a run's folder, or trajectory files")
    return path


def _of_store(path: Path, run: str | None, rules: "TextRules") -> "Iterator[TrainingRow | Excluded]":
    from stemma.formats.training import rows_of_graph

    with reading(str(path)) as store:
        shared, trained = store.shared_events(), set[object]()
        for name in names_of(store, run):  # not `graphs`, which would hold the metadata of all of them
            graph = store.load(name)
            yield from rows_of_graph(graph, store.metadata(name), trained, name=name, rules=rules)
            if shared:  # a reply that forks share is trained in the first of them
                trained |= shared & graph.events()


def names_of(store: "Store", run: str | None) -> "list[str]":
    """The conversations to export; `NotFound` if the run has none."""
    names = list(store.names(run))
    if run is not None and not names:
        raise NotFound(f"there is no run {run!r} in the store; `stemma log` lists what there is")
    return names


def _of_files(path: Path, rules: "TextRules") -> "Iterator[TrainingRow | Excluded | BadRecord]":
    from stemma.formats.files import load_trajectories
    from stemma.formats.training import rows_of_entry

    bad: list[BadRecord] = []
    for number, entry in enumerate(load_trajectories(path, on_bad=bad.append), 1):
        yield from bad
        bad.clear()
        try:
            yield from rows_of_entry(entry, f"{path}#{number}", rules)
        except BadRecord as problem:
            yield BadRecord(problem.problem, f"{path}#{number}")
    yield from bad


def package_version() -> str:
    """Which stemma this is."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("stemmata")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"


def _print(report: "Report") -> None:
    screen = Screen()
    tokens = "" if report.tokens is None else f", {report.tokens:,} tokens"
    screen.line(
        (report.file, "bold"),
        f": {report.written:,} rows, {report.trained_messages:,} of {report.replies:,} replies trained{tokens}",
    )
    for path in report.sidecars:
        screen.line(("  beside it  ", "dim"), path)
    for reason, count in sorted(report.off_policy_reasons.items()):
        screen.line(("  off-policy ", "yellow"), f"{count:,} rows: {reason}")
    for what, count in (report.template or {}).items():
        screen.line(("  template   ", "dim" if what == "rows" else "yellow"), f"{count:,} {what}")
    for reason, met in sorted(report.left_out.items()):
        lost = (
            f"{met.replies:,} replies, {met.rows:,} rows: {reason}"
            if met.rows
            else f"{met.replies:,} replies: {reason}"
        )
        screen.line(("  left out   ", "yellow"), lost, (f"  e.g. {met.example}: {met.detail}", "dim"))
    if report.sample is not None:
        screen.line(("  sample     ", "dim"), cut(_one_line(report.sample), 400))
    screen.line(("  proof      ", "dim"), "receipts.jsonl, manifest.json; `stemma verify` checks them")


def _one_line(row: dict[str, Any]) -> str:
    import json

    return json.dumps(row, ensure_ascii=False)
