"""Where files of ours are: config, cache and state, as XDG has it; and a project's own config.

A project's file is `.stemma/config.yaml`, in the current folder or above it up to the root of the repository. Outside
of a repository only the current folder counts: what lies above may be somebody else's. `tests/cli/test_settings.py`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

PROJECT_FILE = Path(".stemma", "config.yaml")


def user_config(environ: Mapping[str, str]) -> Path:
    """The user's config file."""
    return _home(environ, "XDG_CONFIG_HOME", ".config") / "config.yaml"


def user_cache(environ: Mapping[str, str]) -> Path:
    """Where models that were fetched are kept."""
    return _home(environ, "XDG_CACHE_HOME", ".cache")


def user_state(environ: Mapping[str, str]) -> Path:
    """Where what was typed is kept."""
    return _home(environ, "XDG_STATE_HOME", ".local/state")


def for_the_user_alone(path: str, flags: int) -> int:
    """An opener for files that may hold secrets: nobody else can read them, whatever the umask and their mode were."""
    file = os.open(path, flags | os.O_CLOEXEC, 0o600)
    os.fchmod(file, 0o600)
    return file


def _home(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    said = Path(environ.get(variable, ""))
    base = said if said.is_absolute() else Path(environ.get("HOME") or "/", usual)  # a relative one is invalid, by XDG
    return base / "stemma"


def project_config(folder: Path) -> Path | None:
    """The config file of the project that `folder` is in."""
    return next((place / PROJECT_FILE for place in _project(folder) if (place / PROJECT_FILE).is_file()), None)


def _project(folder: Path) -> list[Path]:
    """`folder` and those above it, up to the root of the repository."""
    above = [folder, *folder.parents]
    root = next((number for number, place in enumerate(above) if (place / ".git").exists()), 0)
    return above[: root + 1]
