"""`stemma config`: what is set, who said it, and where to say it. `tests/cli/test_config.py` runs it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stemma.cli.known_settings import UnknownSetting
from stemma.cli.options import JsonOption
from stemma.cli.screen import Screen, pad
from stemma.errors import NotFound, StemmaError
from stemma.formats.yaml_files import BadSettings

if TYPE_CHECKING:
    from stemma.cli.trust import Project

config = typer.Typer(help="Print what is set, and where.", no_args_is_help=True, rich_markup_mode=None)


class FileThere(StemmaError, FileExistsError):
    """A file that would be written over."""

    def __str__(self) -> str:
        return str(self.args[0])


@config.command()
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Say for each who said it.")] = False,
    json: JsonOption = False,
) -> None:
    """Print every setting as it counts here; secrets are left out.

    A flag comes before the environment (STEMMA_AGENT__TURNS=5), that before the project's .stemma/config.yaml, that
    before the user's config.yaml, and that before the default.
    """
    from stemma.cli.known_settings import Setting, known
    from stemma.cli.settings import load_settings
    from stemma.redact import MASK, without_secrets

    def shown(setting: Setting, value: Any) -> Any:
        return dict.fromkeys(value, MASK) if setting.secret else without_secrets(value)

    settings = load_settings(only_to_show=True)
    values = {key: shown(known(key)[0], settings.get(key)) for key in settings.every_key()}
    origins = {key: settings.origin(key) for key in values}
    if json:
        told = {key: {"value": value, "origin": origins[key]} for key, value in values.items()}
        Screen().json(told if origin else values)
    else:
        _print(values, origins, origin)
        if _state() == _UNTRUSTED:
            Screen().line("the project's file is not trusted and counts only after `stemma config trust`")


def _print(values: dict[str, object], origins: dict[str, str], with_origin: bool) -> None:
    from json import dumps

    screen, width = Screen(), max(map(len, values))
    for key, value in values.items():
        style = "dim" if origins[key] == "default" else "bold"
        told = f"  {dumps(value, ensure_ascii=False)}"
        screen.line((pad(key, width), style), told, (f"  ({origins[key]})" if with_origin else "", "dim"))


@config.command()
def path(json: JsonOption = False) -> None:
    """Print the config files that count here, the stronger first, and whether they are there."""
    from stemma.cli.places import PROJECT_FILE, project_config, user_config

    here, screen = Path.cwd(), Screen()
    files = {"project": project_config(here) or here / PROJECT_FILE, "user": user_config(os.environ)}
    if json:
        told: dict[str, dict[str, Any]] = {
            whose: {"path": str(file), "exists": file.is_file()} for whose, file in files.items()
        }
        told["project"]["trusted"] = _state() != _UNTRUSTED
        screen.json(told)
        return
    for whose, file in files.items():
        state = (_state() if whose == "project" else "") if file.is_file() else "  (not there)"
        screen.line((pad(whose, 9), "dim"), str(file), (state, "dim"))


_UNTRUSTED = "  (not trusted: read it, then run `stemma config trust`)"


def _state() -> str:
    """What is to be said of the trust in the project's file, if there is one and it can be read."""
    from stemma.cli.trust import is_trusted

    try:
        project = _project()
    except (BadSettings, UnknownSetting):
        return ""
    if project is None or not project.risky:
        return ""
    return "  (trusted)" if is_trusted(project, os.environ) else _UNTRUSTED


def _project() -> "Project | None":
    from stemma.cli.places import project_config
    from stemma.cli.trust import read_project

    file = project_config(Path.cwd())
    return None if file is None else read_project(file, file.read_bytes(), Path.cwd())


@config.command()
def trust(
    revoke: Annotated[bool, typer.Option("--revoke", help="Trust the project's file no longer.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Print the files that are trusted.")] = False,
    json: JsonOption = False,
) -> None:
    """Trust the project's .stemma/config.yaml as it is now.

    A file that can start programs, say where keys go, open the sandbox, name files or lift a limit on money counts only
    after that, and needs it again when it changes, or when a file of the project changes that it has loaded or run.
    """
    if revoke and list_:
        raise typer.BadParameter("--list shows and --revoke changes; give one of them")
    if list_:
        _list_trusted(json=json)
        return
    project = _project()
    if project is None:
        raise NotFound("there is no .stemma/config.yaml here or above, up to the root of the repository")
    _revoke(project, json=json) if revoke else _trust(project, json=json)


def _list_trusted(*, json: bool) -> None:
    from stemma.cli.trust import trusted_files

    files, screen = trusted_files(os.environ), Screen()
    if json:
        screen.json(files)
        return
    for file in files:
        screen.line(file)


def _revoke(project: "Project", *, json: bool) -> None:
    from stemma.cli.trust import revoke

    if not revoke(project.file, os.environ):
        raise NotFound(f"{project.file} was not trusted")
    if json:
        Screen().json({"path": str(project.file), "trusted": False})
    else:
        Screen().line(("no longer trusted: ", "dim"), str(project.file))


def _trust(project: "Project", *, json: bool) -> None:
    from stemma.cli.trust import trust

    screen = Screen()
    if project.risky:
        trust(project, os.environ)
    if json:
        named = [{"key": one.key, "line": one.line, "risk": one.risk.value} for one in project.risky]
        screen.json({"path": str(project.file), "trusted": True, "settings": named})
        return
    screen.line(("trusted: " if project.risky else "needs no trust: ", "dim"), str(project.file))
    for one in project.risky:
        screen.line(f"  {one.key}", (f"  line {one.line}: {one.risk.value}", "dim"))


@config.command()
def init(
    user: Annotated[bool, typer.Option("--user", help="Write the user's file, not the project's.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a config file that names every setting, commented out, with its default and what it does.

    A file that is there already is left alone.
    """
    from stemma.cli.example_config import example
    from stemma.cli.places import PROJECT_FILE, for_the_user_alone, user_config

    file = user_config(os.environ) if user else Path.cwd() / PROJECT_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(file, "x", encoding="utf-8", opener=for_the_user_alone) as target:
            target.write(example())
    except FileExistsError:
        raise FileThere(f"{file} is there already, and was left as it is") from None
    Screen().json({"path": str(file)}) if json else Screen().line(("written: ", "dim"), str(file))
