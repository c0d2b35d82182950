"""A config file to begin with: every setting with its default and what it does, each commented out.

`tests/cli/test_config.py` takes the comment signs away and loads it.
"""

import json
from itertools import takewhile

from stemma.cli.known_settings import KNOWN

_HEAD = "# Settings of stemma. Take the first # of a line, and of the line above its group, away to set it."
_COLUMN = 52


def example() -> str:
    """The text of the file."""
    lines, above = [_HEAD], list[str]()
    for setting in KNOWN:
        *group, last = setting.key.replace("*", "example").split(".")
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(above, group, strict=False)))
        lines += [""] if not same and group else []
        lines += [f"#{'  ' * depth}{part}:" for depth, part in enumerate(group) if depth >= same]
        value = json.dumps(setting.default, ensure_ascii=False)
        lines.append(f"#{'  ' * len(group)}{last}: {value}".ljust(_COLUMN) + f"# {setting.help}")
        above = group
    return "\n".join(lines) + "\n"
