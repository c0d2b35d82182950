"""Settings as they may be shown: with all that may be secret left out.

Keys are only named in a config, by the variable that holds them. Beyond that, values of headers and of servers'
environments are left out, credentials and queries in addresses, and whatever is named like a secret in parameters and
arguments. Not covered: a secret in a place that does not look like one. `tests/cli/test_config.py` proves it.
"""

import re
from collections.abc import Mapping
from typing import Any

from stemma.cli.known_settings import Setting

HIDDEN = "…"
_SECRET = "auth|key|token|secret|password|cookie"
_ARGUMENT = re.compile(rf"(-[^=\s]*(?:{_SECRET})[^=\s]*)(=.*)?", re.IGNORECASE | re.DOTALL)


def shown(setting: Setting, value: Any) -> Any:
    """The value of a setting, for people."""
    return dict.fromkeys(value, HIDDEN) if setting.secret else without_secrets(value)


def without_secrets(value: Any) -> Any:
    """A value with what looks secret left out.

    >>> without_secrets("https://me:pw@example.org/search?key=1")
    'https://…@example.org/search?…'
    >>> without_secrets(["serve", "--api-token", "x", "--port=1", "--secret=y"])
    ['serve', '--api-token', '…', '--port=1', '--secret=…']
    """
    if isinstance(value, str):
        return re.sub(r"(://[^?\s]*\?)\S*", rf"\1{HIDDEN}", re.sub(r"://[^/@\s]*@", f"://{HIDDEN}@", value))
    if isinstance(value, list):
        return [_argument(before, item) for before, item in zip(["", *value], value, strict=False)]
    if isinstance(value, dict):
        return {key: HIDDEN if _is_secret(key, inner) else without_secrets(inner) for key, inner in value.items()}
    return value


def secret_values(named: Mapping[str, str]) -> list[str]:
    """The values whose names say that they are secret.

    >>> secret_values({"LANG": "C", "GITHUB_TOKEN": "ghp_1"})
    ['ghp_1']
    """
    return [value for name, value in named.items() if _is_secret(name, value)]


def _is_secret(name: str, value: Any) -> bool:
    """A text under such a name; `max_tokens: 100` is none."""
    return isinstance(value, str) and re.search(_SECRET, name, re.IGNORECASE) is not None


def _argument(before: Any, value: Any) -> Any:
    """`--token=x` and `--token x` without the x."""
    if isinstance(value, str) and (found := _ARGUMENT.fullmatch(value)):
        return found[1] + (f"={HIDDEN}" if found[2] else "")
    flag = _ARGUMENT.fullmatch(before) if isinstance(before, str) else None
    return HIDDEN if flag and not flag[2] else without_secrets(value)
