"""A run that is there already: its files again, its scores again, its numbers; all from the store alone."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from stemma.batch.files import RunFiles
from stemma.batch.outputs import records, shape_of
from stemma.batch.record import as_metadata
from stemma.batch.rewards import Reward, Scored, load_reward, score
from stemma.cli.choosing import credentials
from stemma.cli.screen import Screen
from stemma.cli.settings import load_settings
from stemma.errors import NotFound
from stemma.redact import Redactor
from stemma.store import Store, open_store


@contextmanager
def open_run(run: str, folder: Path = Path("runs")) -> Iterator[tuple[Store, str, RunFiles]]:
    """The store, the name and the files of a run, given by its folder or by its name."""
    place = Path(run) if (Path(run) / "stemma.db").exists() else folder / run
    if not (place / "stemma.db").exists():
        raise NotFound(f"there is no run at {place}; name a run's folder, or a run below {folder}")
    with open_store(place / "stemma.db", create=False) as store:
        name = place.resolve().name
        metadata = run_metadata(store, name)
        yield store, name, RunFiles(place, name, store, shape_of(metadata), metadata["about"])


def run_metadata(store: Store, run: str) -> dict[str, Any]:
    """What a run says of itself."""
    known = {one.name: one.metadata for one in store.runs()}
    if run not in known or "recipe" not in known[run]:
        raise NotFound(f"the store has no batch {run!r}; it has: {', '.join(known) or 'none'}")
    return known[run]


def rebuild_run(folder: Path, run: str) -> None:
    """Write all files of a run anew."""
    with open_run(run, folder) as (_, _, files):
        numbers = files.finish()
        Screen().line(f"{files.folder}: {numbers['exported']:,} conversations written again from the store")


def rescore_run(folder: Path, run: str, reward: str | None) -> None:
    """Score every ended conversation of a run anew, and write its files."""
    if reward is None:
        raise typer.BadParameter("--rescore needs --reward module:function")
    function = load_reward(reward, Path.cwd())
    with open_run(run, folder) as (store, name, _):
        asyncio.run(_rescore(store, name, function, Redactor(credentials(load_settings()))))
        metadata = run_metadata(store, name)
        store.save_run(name, {**metadata, **_rewarded(metadata)})
    with open_run(run, folder) as (_, _, files):
        numbers, screen = files.finish(), Screen()
        rewards = numbers["rewards"] or {"scored": 0, "failed": 0}
        screen.line(f"{files.folder}: {rewards['scored']:,} scored, {rewards['failed']:,} could not be")
        for why, number in numbers["reward_errors"].items():
            screen.line(f"  {why} ({number:,})")


def _rewarded(metadata: dict[str, Any]) -> dict[str, Any]:
    """The shape of entries that have a reward."""
    columns = metadata["columns"]
    plain = dict(sorted({**columns["plain"], "stemma_reward": "float"}.items()))
    return {"policies": {**metadata["policies"], "rewarded": True}, "columns": {**columns, "plain": plain}}


async def _rescore(store: Store, run: str, function: Reward, redactor: Redactor) -> None:
    for record in records(store, run):
        if record.ended:
            graph = store.load(record.name)
            scored = await score(function, Scored(graph=graph, record=record), redactor)
            store.save(graph, record.name, metadata=as_metadata(scored))
