"""`stemma batch`: an agent over every row of a file, in a run that can be stopped and taken up at any time."""

from pathlib import Path
from typing import Annotated, Any

import typer

from stemma.cli.agent_options import AgentFlags, takes_agent_flags


@takes_agent_flags
def batch(
    flags: AgentFlags,
    prompts: Annotated[
        str | None, typer.Argument(help="Rows to run: .jsonl, .json, .csv, .parquet, a dataset folder, or - for stdin.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The run; else named after the file and the model.")
    ] = None,
    folder: Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="Where runs are kept.")] = Path("runs"),
    samples: Annotated[int | None, typer.Option("-r", "--samples", help="Conversations for each prompt.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("-c", "--concurrency", help="How many at once; else as many as the endpoint bears.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="At most so many processes; else as many as help, up to 8."),
    ] = None,
    first: Annotated[int | None, typer.Option("-n", "--first", help="Only the first N rows.")] = None,
    slice_: Annotated[str | None, typer.Option("--slice", metavar="A:B", help="Only rows A up to B.")] = None,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="REGEX", help="Only rows whose prompt or id matches.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Makes draws and sampling seeds repeatable.")] = None,
    distribution: Annotated[
        str | None, typer.Option("--distribution", help="Draw each prompt's toolsets from this distribution.")
    ] = None,
    distributions: Annotated[
        Path | None, typer.Option("--distributions", metavar="FILE", help="Your own distributions, in YAML.")
    ] = None,
    list_distributions: Annotated[
        bool, typer.Option("--list-distributions", help="Show the distributions and exit.")
    ] = False,
    budget: Annotated[str | None, typer.Option("--budget", help="Stop at $5, or at '2M tokens'.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Most seconds of one conversation.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Prompts in each part file.")] = None,
    reward: Annotated[
        str | None, typer.Option("--reward", metavar="MODULE:FUNCTION", help="Score each finished conversation.")
    ] = None,
    keep_no_reasoning: Annotated[
        bool | None, typer.Option("--keep-no-reasoning", help="Export conversations without any reasoning, too.")
    ] = None,
    keep_unknown_tools: Annotated[
        bool | None, typer.Option("--keep-unknown-tools", help="Export conversations that called tools not offered.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed/--no-retry-failed", help="Try failed tasks of the run again.")
    ] = True,
    fork: Annotated[bool, typer.Option("--fork", help="If the configuration changed: make a new run of it.")] = False,
    amend: Annotated[
        bool, typer.Option("--amend", help="If the configuration changed: go on, and leave what has ended as it is.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Repeat what a run's config.yaml says.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and an estimate.")] = False,
    display: Annotated[
        str, typer.Option("--display", metavar="KIND", help="auto, full, plain, json or none.")
    ] = "auto",
    rebuild: Annotated[
        str | None, typer.Option("--rebuild", metavar="RUN", help="Write a run's files again from its store.")
    ] = None,
    rescore: Annotated[
        str | None, typer.Option("--rescore", metavar="RUN", help="Score a run's conversations again by --reward.")
    ] = None,
) -> None:
    """Run an agent over every prompt of a file. The same command again goes on where it stopped.

    All of it lands in runs/NAME: the store, trajectories.jsonl, statistics.json, failures.jsonl.
    Exit codes: 0 all done, 3 finished with failures, 130 interrupted.
    """
    from stemma.cli.batch_asked import Asked, asked_again

    if list_distributions:
        from stemma.cli.batch_showing import show_distributions

        return show_distributions(distributions)
    if rebuild is not None:
        from stemma.cli.batch_again import rebuild_run

        return rebuild_run(folder, rebuild)
    if rescore is not None:
        from stemma.cli.batch_again import rescore_run

        return rescore_run(folder, rescore, reward)
    given: dict[str, Any] = {
        "prompts": prompts,
        "name": name,
        "samples": samples,
        "concurrency": concurrency,
        "processes": processes,
        "first": first,
        "slice": slice_,
        "filter": filter_,
        "seed": seed,
        "distribution": distribution,
        "distributions": str(distributions) if distributions else None,
        "budget": budget,
        "timeout": timeout,
        "batch_size": batch_size,
        "reward": reward,
        "keep_no_reasoning": keep_no_reasoning,
        "keep_unknown_tools": keep_unknown_tools,
    }
    asked: Asked = asked_again(config, given, flags)
    from stemma.cli.batch_running import run

    raise typer.Exit(
        run(asked, folder, retry_failed=retry_failed, fork=fork, amend=amend, dry_run=dry_run, display=display)
    )
