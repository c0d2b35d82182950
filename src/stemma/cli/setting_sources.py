"""What a config file, the environment and flags say, checked against the table of settings.

A key that does not exist, a value of the wrong type and a secret written into a file are errors that name the place. In
the environment a setting is `STEMMA_` and its key in capitals, with `__` for a dot: `STEMMA_AGENT__TURNS=5`; an empty
variable says nothing. `tests/cli/test_settings.py` proves it.
"""

from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from stemma.cli.known_settings import KNOWN, NAMED, Parts, Setting, UnknownSetting, known, nearest, wanted
from stemma.cli.places import PROJECT_FILE
from stemma.formats.yaml_files import BadSettings, pairs, read_yaml, value_of
from stemma.redact import names_a_secret, without_secrets

PREFIX = "STEMMA_"


class Found(NamedTuple):
    """A value, and who said it."""

    value: Any
    origin: str


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Said(NamedTuple):
    """A setting, as a config file says it."""

    setting: Setting
    parts: Parts
    value: Any
    line: int


def from_file(file: Path, content: bytes, folder: Path) -> dict[Parts, Found]:
    """What a config file of this content says; its relative paths are its project's."""
    project, name = project_of(file), _shown_name(file, folder)
    return {
        one.parts: Found(_at_home(one.setting, one.value, project), f"{name}:{one.line}")
        for one in said_in(file, content, folder)
    }


def said_in(file: Path, content: bytes, folder: Path) -> Iterator[Said]:
    """Every setting in a config file of this content; errors name it as seen from `folder`."""
    name = _shown_name(file, folder)
    yield from _leaves(read_yaml(content, name), (), name)


def project_of(file: Path) -> Path:
    """The folder from which relative paths in a config file are meant."""
    return file.parents[1] if file.parts[-2:] == PROJECT_FILE.parts else file.parent


def _shown_name(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


def _leaves(node: yaml.Node | None, above: Parts, file: str) -> Iterator[Said]:
    for pair in pairs(node, file):
        parts, place = (*above, pair.key), f"{file}:{pair.line}"
        setting = _SETTINGS.get(_starred(parts))
        if setting is not None:
            yield Said(setting, parts, checked(setting, value_of(pair.node, file), place), pair.line)
        elif _starred(parts) in _ABOVE:
            yield from _leaves(pair.node, parts, file)
        else:
            raise _unknown(parts, place)


def _starred(parts: Parts) -> Parts:
    return (parts[0], "*", *parts[2:]) if parts[0] in NAMED and len(parts) > 1 else parts


_SETTINGS = {tuple(setting.key.split(".")): setting for setting in KNOWN}
_ABOVE = {parts[:n] for parts in _SETTINGS for n in range(1, len(parts))}


def _unknown(parts: Parts, place: str) -> UnknownSetting | BadSettings:
    key = ".".join(parts)
    if names_a_secret(parts[-1]):
        return BadSettings(
            f"{place}: {key}: a secret does not belong into a file; put it into an environment variable and name that "
            "one, as in `api_key_env: MY_API_KEY`"
        )
    return UnknownSetting(f"{place}: there is no setting {key!r}{nearest('.'.join(_starred(parts)))}")


def _at_home(setting: Setting, value: Any, project: Path) -> Any:
    """Paths as meant from the project; others as they are."""
    if not setting.paths or value is None:
        return value
    if isinstance(value, list):
        return [_at_home(setting, one, project) for one in value]
    return str(project / Path(value).expanduser())


# ── environment and flags ────────────────────────────────────────────────────────────────────────────────────────


def from_environment(environ: Mapping[str, str]) -> dict[Parts, Found]:
    """What environment variables say."""
    found = {}
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and text:
            setting, parts = _of_variable(variable)
            found[parts] = Found(checked(setting, _spoken(setting, text, variable), variable), f"env {variable}")
    return found


def _of_variable(variable: str) -> tuple[Setting, Parts]:
    key = variable.removeprefix(PREFIX).lower().replace("__", ".")
    try:
        return known(key)
    except UnknownSetting:
        raise UnknownSetting(
            f"the environment variable {variable} would set {key!r}, which is no setting{nearest(key)}"
        ) from None


def _spoken(setting: Setting, text: str, variable: str) -> Any:
    """A text stays as it is; all else is read as YAML, and a list may be `a,b`."""
    if setting.type in (str, str | None):
        return text
    node = read_yaml(text, variable)
    value = None if node is None else value_of(node, variable)
    if setting.type == list[str] and isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value


def from_flags(flags: Mapping[str, Any]) -> dict[Parts, Found]:
    """What flags say; those that are None were not given."""
    found = {}
    for key, value in flags.items():
        setting, parts = known(key)
        if value is not None:
            flag = "--" + (setting.flag or key.split(".")[-1].replace("_", "-"))
            plain = [_plain(one) for one in value] if isinstance(value, list | tuple) else _plain(value)
            found[parts] = Found(checked(setting, plain, flag), f"flag {flag}")
    return found


def _plain(value: Any) -> Any:
    return fspath(value) if isinstance(value, PathLike) else value


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────


def checked(setting: Setting, value: Any, place: str) -> Any:
    """The value, if it is of the setting's type."""
    try:
        return msgspec.convert(value, setting.type)
    except msgspec.ValidationError:
        # A key instead of a name, or instead of a mapping that holds keys, is not shown.
        hidden = isinstance(value, str) and (setting.secret or setting.key.endswith("_env"))
        given = "that" if hidden else _shown(value)
        raise BadSettings(f"{place}: {setting.key} must be {wanted(setting.type)}, not {given}") from None


def _shown(value: Any) -> str:
    """What was given, in short; values of mappings may be secret."""
    if isinstance(value, dict):
        return "a mapping"
    return "null" if value is None else f"{without_secrets(value)!r:.60}"
