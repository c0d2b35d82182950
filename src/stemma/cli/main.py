"""The command `stemma`: exit codes, and errors in one line.

0 is fine, 1 is wrong usage or nothing found, 2 is `verify` found something. No user sees a traceback for what a user
can cause. Commands import what they need when they run, so that `stemma --help` answers at once.
`tests/cli/test_main.py` proves it.
"""

import os
import sys
from io import TextIOWrapper
from typing import Annotated, TextIO, cast

import typer
from typer.main import get_command

from stemma.cli import (
    batch,
    chat,
    compress,
    config,
    diff,
    doctor,
    export,
    import_,
    log,
    merge,
    models,
    show,
    stats,
    verify,
)
from stemma.cli.screen import stop_writing, visible
from stemma.errors import StemmaError

_UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
"""The base of all complaints about arguments. It lives in click or, in newer versions, inside typer."""

app = typer.Typer(
    name="stemma",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (
    chat.chat,
    batch.batch,
    stats.stats,
    log.log,
    show.show,
    diff.diff,
    verify.verify,
    merge.merge,
    export.export,
    compress.compress,
):
    app.command()(command)
app.command("import")(import_.import_)
app.add_typer(models.models, name="models")
app.add_typer(config.config, name="config")
app.command()(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"stemma {version('stemmata')}")
        except PackageNotFoundError:  # run from a checkout that was never installed
            typer.echo("stemma, not installed")
        raise typer.Exit


@app.callback()
def stemma(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Look at recorded agent conversations: every version, every model call, every subagent.

    The store is `stemma.db` in the current folder, unless --store or STEMMA_STORE says otherwise.
    Exit codes: 0 fine, 1 wrong usage or nothing found, 2 verify found something.
    """


def run() -> None:
    """The entry point: never a traceback, whatever the encoding of the terminal."""
    sys.stdout, sys.stderr = _able(sys.stdout), _able(sys.stderr)
    sys.exit(main(sys.argv[1:]))


def _able(stream: TextIO | None) -> TextIO:
    """A stream that takes any text; a closed one (`>&-`) takes it nowhere."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    cast(TextIOWrapper, stream).reconfigure(errors="backslashreplace")
    return stream


def main(arguments: list[str]) -> int:
    """Do what the arguments say, or without any say what one could do; the exit code."""
    try:
        code = get_command(app).main(arguments or ["--help"], prog_name="stemma", standalone_mode=False)
        return _flushed(code or 0)
    except _UsageError as problem:
        return _complain(_usage(problem))
    except typer.Abort:
        return _complain("aborted")
    except (StemmaError, OSError) as problem:
        return _complain(str(problem))


def _flushed(code: int) -> int:
    """`code`, once all output has left, or the reader has."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        stop_writing()
    return code


def _complain(problem: str) -> int:
    typer.echo(f"stemma: {visible(problem)}", err=True)
    return 1


def _usage(problem: BaseException) -> str:
    """The complaint, and where to read what is right."""
    context = getattr(problem, "ctx", None)
    where = context.command_path if context is not None else "stemma"
    return f"{problem.format_message()} (see `{where} --help`)"  # type: ignore[attr-defined]
