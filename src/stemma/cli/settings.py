"""Settings: what a flag, the environment, the project's file or the user's file says, in this order; else the default.

    settings = load_settings({"model": "fast"})
    settings.get("agent.turns")          # 60
    settings.section("sandbox")          # {"kind": "auto", "network": False, …}
    settings.origin("model")             # "flag --model"

`known_settings` has the table of keys, `setting_sources` reads what was said, `trust` decides whether a project's file
is heard. `tests/cli/test_settings.py` proves it.
"""

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from stemma.cli.known_settings import KNOWN, NAMED, Parts, known, parts_of_group
from stemma.cli.places import project_config, user_config
from stemma.cli.setting_sources import Found, from_environment, from_file, from_flags
from stemma.cli.trust import check_trust, read_project


class Settings:
    """All settings; they do not change."""

    def __init__(self, found: Mapping[Parts, Found]) -> None:
        self._found = dict(found)

    def get(self, key: str) -> Any:
        """The value of one setting."""
        setting, parts = known(key)
        return deepcopy(self._found[parts].value if parts in self._found else setting.default)

    def origin(self, key: str) -> str:
        """Who said it: `flag --model`, `env STEMMA_MODEL`, `.stemma/config.yaml:3`, `default`."""
        _, parts = known(key)
        return self._found[parts].origin if parts in self._found else "default"

    def section(self, key: str) -> dict[str, Any]:
        """All settings below `key` as a plain nested dict, defaults included; names are those somebody gave."""
        group = parts_of_group(key)
        tree: dict[str, Any] = {}
        for parts in self._all():
            if parts[: len(group)] == group:
                inner = tree
                for part in parts[len(group) : -1]:
                    inner = inner.setdefault(part, {})
                inner[parts[-1]] = self.get(".".join(parts))
        return tree

    def every_key(self) -> list[str]:
        """Every setting there is, with those of all models and servers that somebody named."""
        named_last = sorted(self._all(), key=lambda parts: parts[:2] if parts[0] in NAMED else ())
        return [".".join(parts) for parts in named_last]

    def _all(self) -> Iterator[Parts]:
        for setting in KNOWN:
            group = setting.key.split(".")[0]
            given = {parts[1]: None for parts in self._found if parts[0] == group} if group in NAMED else {"": None}
            yield from (setting.parts(name) for name in given)


def load_settings(flags: Mapping[str, Any] | None = None, *, only_to_show: bool = False) -> Settings:
    """The settings of this process; a flag that is None was not given."""
    return read_settings(flags or {}, os.environ, Path.cwd(), only_to_show=only_to_show)


def read_settings(
    flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path, *, only_to_show: bool = False
) -> Settings:
    """The settings that all of these give together.

    A project's file that needs the user's trust and does not have it is `Untrusted`, unless nothing is done with it.
    """
    found: dict[Parts, Found] = {}
    user, project = user_config(environ), project_config(folder)
    if user.is_file():
        found |= from_file(user, user.read_bytes(), folder)
    if project is not None:
        content = project.read_bytes()  # read once: what was checked is what counts
        if not only_to_show:
            check_trust(read_project(project, content, folder), environ)
        found |= from_file(project, content, folder)
    return Settings(found | from_environment(environ) | from_flags(flags))
