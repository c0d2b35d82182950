"""From what was asked to a run, and from the run to an exit code.

0: all done, or other processes of the run are at the rest. 3: finished, with failures or with tasks left.
130: interrupted; the same command goes on.
The first Ctrl-C stops starting and lets running conversations end, the second leaves them where they are, the third is
Python's own. `tests/cli/test_batch.py` proves it.
"""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from stemma.agent.agent import Agent
from stemma.batch.batch import Batch, run_batch
from stemma.batch.budget import BadBudget, Budget, read_budget
from stemma.batch.distributions import find_distribution
from stemma.batch.helper import help_out
from stemma.batch.order import Order
from stemma.batch.plan import Selection
from stemma.batch.reserve import Reserve, reserved
from stemma.batch.rewards import load_reward
from stemma.cli.batch_asked import Asked, as_yaml, bounds, free_name, matcher, run_name, spooled
from stemma.cli.batch_processes import most_processes
from stemma.cli.batch_showing import Display, choose_display, say
from stemma.cli.building import Choose, build_agent, open_toolbox, toolsets_of
from stemma.cli.chat_stopping import ONE_PRESS
from stemma.cli.choosing import choose_model
from stemma.cli.settings import Settings, load_settings
from stemma.formats.export import write_whole
from stemma.models.prices import HOW_TO_PRICE, tells_cost
from stemma.redact import secrets_in
from stemma.tools.tool import Tool

ALL_DONE, WITH_FAILURES, INTERRUPTED = 0, 3, 130

Maker = Callable[[], AbstractAsyncContextManager[Callable[[Asked], Batch]]]
"""Makes batches, while the tools that they need are there."""


def run(asked: Asked, folder: Path, *, retry_failed: bool, fork: bool, amend: bool, dry_run: bool, display: str) -> int:
    """Do what was asked; the exit code."""
    settings = load_settings({**asked.settings, "agent.seconds": asked.timeout})
    name = run_name(asked, settings)
    asked = spooled(msgspec.structs.replace(asked, name=name), folder / name)
    model = choose_model(settings, base_url=asked.base_url)
    if asked.budget and read_budget(asked.budget).cost is not None and not tells_cost(model):
        raise BadBudget(f"--budget {asked.budget} needs the model's prices, which are not known: {HOW_TO_PRICE}")

    @asynccontextmanager
    async def maker() -> AsyncIterator[Callable[[Asked], Batch]]:
        try:
            async with open_toolbox(settings) as choose:
                secrets = secrets_in(asked.base_url)
                offered = choose(toolsets_of(settings))
                agent = build_agent(settings, model, offered, params=asked.params, secrets=secrets, runs=folder)
                yield partial(_batch, agent, choose, folder, retry_failed=retry_failed, amend=amend)
        finally:
            await model.close()

    async def begin(reserve: Reserve | None) -> int:
        async with maker() as make:
            return await _run(asked, settings, make, folder, reserve, fork=fork, dry_run=dry_run, display=display)

    most = 1 if dry_run else most_processes(asked.processes, settings, model, budget=asked.budget is not None)
    gc.freeze()  # what is loaded by now stays: the collector need not look at it, nor a process that is forked copy it
    with reserved(most, partial(help_out, partial(_orders, asked, maker))) as reserve:
        return asyncio.run(begin(reserve))


@asynccontextmanager
async def _orders(asked: Asked, maker: Maker, name: str) -> AsyncIterator[Order]:
    """What a helper is to do: the same as we."""
    async with maker() as make:
        yield make(msgspec.structs.replace(asked, name=name)).order


async def _run(
    asked: Asked,
    settings: Settings,
    make: Callable[[Asked], Batch],
    folder: Path,
    reserve: Reserve | None,
    *,
    fork: bool,
    dry_run: bool,
    display: str,
) -> int:
    batch = make(asked)
    if fork and batch.changed():
        assert asked.name is not None
        asked = msgspec.structs.replace(asked, name=free_name(folder, asked.name))
        batch = make(asked)
    if dry_run:
        from stemma.cli.batch_showing import show_plan

        show_plan(batch, asked, settings)
        return ALL_DONE
    batch.check()
    batch.folder.mkdir(parents=True, exist_ok=True)
    write_whole(batch.folder / "config.yaml", as_yaml(asked, settings))
    batch.reserve, batch.notice = reserve, say
    return await _watched(batch, choose_display(display))


async def _watched(batch: Batch, display: Display) -> int:
    loop = asyncio.get_running_loop()
    pressed: list[float] = []

    def interrupt() -> None:
        if pressed and loop.time() - pressed[-1] < ONE_PRESS:
            return
        pressed.append(loop.time())
        if len(pressed) == 1:
            batch.stop("interrupted: running conversations end; Ctrl-C again leaves them where they are")
        else:
            batch.cancel()
            loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, interrupt)
    try:
        with display.showing(batch):
            async with aclosing(batch.__aiter__()) as results:
                async for result in results:
                    display.result(result)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
    display.end(batch)
    return exit_code(batch, interrupted=bool(pressed))


def exit_code(batch: Batch, *, interrupted: bool) -> int:
    """How the run ended, for scripts."""
    tasks = batch.statistics["tasks"]
    # Judged by the run, not by this process: others may have done a part of it, and may be doing the rest.
    unfinished = max(tasks["running"], batch.statistics["total_tasks"] - tasks["completed"] - tasks["stopped"])
    left = unfinished > batch.left_to_others
    if interrupted and left:
        return INTERRUPTED
    unscored = (batch.statistics["rewards"] or {}).get("failed", 0)
    failed = tasks["failed"] or unscored or batch.statistics["export_errors"]
    return WITH_FAILURES if left or failed else ALL_DONE


def _batch(agent: Agent, choose: Choose, folder: Path, asked: Asked, *, retry_failed: bool, amend: bool) -> Batch:
    start, stop = bounds(asked.slice)
    file = Path(asked.distributions) if asked.distributions else None
    assert asked.name is not None
    return run_batch(
        Path(asked.prompts),
        agent=agent,
        name=asked.name,
        folder=folder,
        samples=asked.samples,
        seed=asked.seed,
        distribution=find_distribution(asked.distribution, file) if asked.distribution else None,
        offer=offering(agent, choose),
        selection=Selection(first=asked.first, start=start, stop=stop, keep=matcher(asked.filter)),
        concurrency=asked.concurrency,
        budget=read_budget(asked.budget) if asked.budget else Budget(),
        batch_size=asked.batch_size,
        reward=load_reward(asked.reward, Path.cwd()) if asked.reward else None,
        keep_no_reasoning=asked.keep_no_reasoning,
        keep_unknown_tools=asked.keep_unknown_tools,
        retry_failed=retry_failed,
        amend=amend,
    )


def offering(agent: Agent, choose: Choose) -> Callable[[Sequence[str]], list[Tool]]:
    """The tools that a row or a distribution names, delegation among them."""

    def offer(names: Sequence[str]) -> list[Tool]:
        from stemma.agent.subagent import delegation

        chosen = choose(names)
        return [*chosen.tools, delegation(agent, chosen.tools)] if chosen.delegates else chosen.tools

    return offer
