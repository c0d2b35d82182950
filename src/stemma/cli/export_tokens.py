"""`stemma export` for trainers that take tokens. `tests/cli/test_export_tokens.py` runs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from stemma.cli.options import reading
from stemma.cli.screen import Screen
from stemma.core.exclusions import Ephemeral, Rules
from stemma.errors import NotFound, StoreMissing

if TYPE_CHECKING:
    from stemma.core.token_rows import Render
    from stemma.formats.token_export import Example, Rollout, TokenReport
    from stemma.formats.token_preset import TokenPreset


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    source: Path
    out: Path
    run: str | None
    model: str | None
    max_length: int | None
    with_ephemeral: bool
    distill: bool
    tokenizer: Path | None

    @property
    def ephemeral(self) -> Ephemeral:
        """What becomes of calls made under an ephemeral prompt."""
        if self.with_ephemeral and self.distill:
            raise typer.BadParameter("choose one of --with-ephemeral and --distill")
        return "include" if self.with_ephemeral else "distill" if self.distill else "exclude"


def export_tokens(wish: Wish, preset: "TokenPreset", *, json: bool) -> None:
    """Write token rows, and say what became of every call."""
    from stemma.cli.export import package_version
    from stemma.formats.token_export import export_tokens as export
    from stemma.formats.token_render import token_text

    rules = Rules(model=wish.model, max_length=wish.max_length, ephemeral=wish.ephemeral)
    decode = token_text(wish.tokenizer) if wish.tokenizer else None
    with _rollouts(wish) as rollouts:
        report = export(
            rollouts, preset, wish.out, rules, version=package_version(), render=_render(wish), decode=decode
        )
    Screen().json(msgspec.to_builtins(report)) if json else _print(report)


def _render(wish: Wish) -> "Render | None":
    from stemma.formats.token_render import renderer

    if not wish.distill:
        return None
    if wish.tokenizer is None:
        raise NotFound("--distill writes contexts anew: give the model's tokenizer.json with --tokenizer")
    return renderer(wish.tokenizer)


@contextmanager
def _rollouts(wish: Wish) -> Iterator[Iterator["Rollout"]]:
    from stemma.cli.export import names_of
    from stemma.formats.token_export import rollout_of

    if wish.source.suffix != ".db":
        raise StoreMissing(f"{wish.source} is no store; only calls recorded in one have their tokens")
    with reading(str(wish.source)) as store:
        names = names_of(store, wish.run)
        yield (rollout_of(name, store.metadata(name), partial(store.load, name)) for name in names)


def _print(report: "TokenReport") -> None:
    screen, counts = Screen(), report.counts
    screen.line(
        (report.file, "bold"),
        f": {counts['rows']:,} rows, {counts['row_tokens']:,} tokens, {counts['trained_tokens']:,} of them trained",
    )
    screen.line(("  calls      ", "dim"), f"{counts['trained']:,} of {counts['calls']:,} trained, each exactly once")
    screen.line(("  shared     ", "dim"), f"{counts['tree_tokens']:,} tokens if what rows share stood once")
    for cause, count in sorted(report.breaks.items()):
        screen.line(("  break      ", "cyan"), f"{count:,} × {cause}", (_first(report.examples[cause]), "dim"))
    for reason, count in sorted(report.excluded.items()):
        cost = f"  {report.excluded_tokens[reason]:,} sampled tokens"
        screen.line(("  left out   ", "yellow"), f"{count:,} × {reason}", (cost, "dim"))
    if forced := counts["forced_tokens"]:
        screen.line(("  forced     ", "yellow"), f"{forced:,} sampled tokens a grammar left no choice for: not trained")
    if report.off_policy_rows:
        why = f"; {report.constrained_rows:,} of them sampled under a constraint" if report.constrained_rows else ""
        screen.line(("  off-policy ", "yellow"), f"{report.off_policy_rows:,} rows, marked on_policy: false{why}")
    if report.group_size is not None:
        fillers = counts["filler_rows"]
        added = f", {fillers:,} rows that train nothing added to make them whole" if fillers else ""
        screen.line(("  groups     ", "dim"), f"of {report.group_size:,} rows at most{added}")
    screen.line(("  beside it  ", "dim"), "receipts.jsonl, manifest.json; `stemma verify` proves them")


def _first(example: "Example") -> str:
    place = f"  e.g. {example.rollout} at token {example.at:,}"
    return f"{place}: {_shown(example.was)} → {_shown(example.now)}" if example.now is not None else place


def _shown(token: Any) -> str:
    return "the end" if token is None else repr(token)
