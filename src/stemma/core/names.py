"""Names that people give to graphs, runs and reasons: short printable text, so that any terminal can show it."""

from stemma.errors import BadName

LONGEST = 400


def check_name(what: str, name: str) -> str:
    """`name`, or `BadName` saying why it cannot name a `what`."""
    if not isinstance(name, str) or not name.strip():
        raise BadName(f"a {what} is a text that is not blank; got {name!r}")
    if not name.isprintable() or len(name) > LONGEST:
        raise BadName(f"a {what} is at most {LONGEST} printable characters; got {name!r:.80}")
    return name
