"""`stemma config`: what is set, who said it, and where to say it. `tests/cli/test_config.py` runs it."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stemma.cli.options import JsonOption
from stemma.cli.screen import Screen, pad
from stemma.errors import StemmaError

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

    settings = load_settings()
    values = {key: shown(known(key)[0], settings.get(key)) for key in settings.every_key()}
    origins = {key: settings.origin(key) for key in values}
    if json:
        told = {key: {"value": value, "origin": origins[key]} for key, value in values.items()}
        Screen().json(told if origin else values)
    else:
        _print(values, origins, origin)


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
        screen.json({whose: {"path": str(file), "exists": file.is_file()} for whose, file in files.items()})
        return
    for whose, file in files.items():
        screen.line((pad(whose, 9), "dim"), str(file), ("" if file.is_file() else "  (not there)", "dim"))


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
