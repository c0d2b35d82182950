"""The command `stemma`: exit codes, and errors in one line.

0 is fine, 1 is wrong usage or nothing found, 2 is `verify` found something. No user sees a traceback for what a user
can cause. Commands import what they need when they run, so that `stemma --help` answers at once.
`tests/cli/test_main.py` proves it.
"""

import gc
import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from keyword import iskeyword
from types import TracebackType
from typing import Annotated, NoReturn, TextIO, cast

import typer
from typer.main import get_command

from stemma.cli.screen import stop_writing, visible
from stemma.errors import StemmaError

_UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
"""The base of all complaints about arguments. It lives in click or, in newer versions, inside typer."""

COMMANDS = (
    "chat",
    "batch",
    "stats",
    "log",
    "show",
    "diff",
    "verify",
    "merge",
    "export",
    "compress",
    "import",
    "doctor",
    "models",
    "config",
)
"""Each has a module of its name, with a function of its name or the commands below it."""


def commands(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command `stemma` with these commands; the modules of others are not imported."""
    app = typer.Typer(name="stemma", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(stemma)
    for name in names:
        python_name = f"{name}_" if iskeyword(name) else name
        found = getattr(import_module(f"stemma.cli.{python_name}"), python_name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"stemma {version('stemmata')}")
        except PackageNotFoundError:  # run from a checkout that was never installed
            typer.echo("stemma, not installed")
        raise typer.Exit


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
    # Next to nothing here refers to itself; looking for such garbage every 700 objects took a tenth of a batch's time.
    gc.set_threshold(10_000)
    sys.stdout, sys.stderr = _able(sys.stdout), _able(sys.stderr)
    sys.excepthook = _show_traceback
    _leave(main(sys.argv[1:]))


def _leave(code: int) -> NoReturn:
    """End at once: all that was opened is closed, and taking the program apart piece by piece would cost 50 ms more."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader is gone, or it was closed
            stream.flush()
    if threading.active_count() == 1:
        os._exit(code)
    sys.exit(code)


def _able(stream: TextIO | None) -> TextIO:
    """A stream that takes any text; a closed one (`>&-`) takes it nowhere."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    cast(TextIOWrapper, stream).reconfigure(errors="backslashreplace")
    return stream


def main(arguments: list[str]) -> int:
    """Do what the arguments say, or without any say what one could do; the exit code."""
    try:
        named = [name for name in arguments[:1] if name in COMMANDS]
        app = commands(named or COMMANDS)
        code = get_command(app).main(arguments or ["--help"], prog_name="stemma", standalone_mode=False)
        return _flushed(code or 0)
    except _UsageError as problem:
        return _complain(_usage(problem), arguments)
    except typer.Abort:
        return _complain("aborted", arguments)
    except (StemmaError, OSError) as problem:
        return _complain(str(problem), arguments)


def _flushed(code: int) -> int:
    """`code`, once all output has left, or the reader has."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        stop_writing()
    return code


def _complain(problem: str, arguments: list[str]) -> int:
    """Say what went wrong; what was typed or is set may be repeated in it, secrets may not."""
    typer.echo(f"stemma: {visible(_without_secrets(problem, arguments))}", err=True)
    return 1


def _without_secrets(text: str, arguments: list[str]) -> str:
    from stemma.redact import Redactor, environment_secrets, secrets_in, without_secrets

    redactor = Redactor([*environment_secrets(os.environ), *secrets_in(arguments)])
    return redactor.text(str(without_secrets(text)))


def _show_traceback(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """What Python shows of a mistake of ours, without the secrets that its message may repeat."""
    from traceback import format_exception

    sys.stderr.write(_without_secrets("".join(format_exception(kind, problem, trace)), sys.argv[1:]))


def _usage(problem: BaseException) -> str:
    """The complaint, and where to read what is right."""
    context = getattr(problem, "ctx", None)
    where = context.command_path if context is not None else "stemma"
    return f"{problem.format_message()} (see `{where} --help`)"  # type: ignore[attr-defined]
