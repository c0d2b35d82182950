"""The rows of a batch: what is asked, with which tools, where, and all that is carried along.

A row is an object with a `prompt`: a text, a list of messages, or a list of texts that are asked one after the other
in one conversation. Beside it a row may have

    system      the system prompt for this row          image    the container to work in
    toolsets    names of toolsets or tools (or `tools`)  cwd      a folder whose copy the conversation works in
    limits      turns, tokens, seconds, cost             files    {path: text} to put into the working folder
    id          the row's own name

and any other column, which goes into the metadata of what comes out. Rows are read one at a time from `.jsonl`
(also `.gz`, `.zst`), `.json`, `.csv`, `.parquet`, a dataset folder of Hugging Face, or any iterable.
`tests/batch/test_prompts.py` proves it.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stemma.agent.limits import Limits
from stemma.batch.tables import read_table
from stemma.core.canonical import canonical, plain
from stemma.core.ids import digest
from stemma.errors import BadMessage, StemmaError
from stemma.formats.hermes import to_trajectory

Prompts = str | Path | Iterable[str | Mapping[str, Any]]

_OWN = ("prompt", "system", "toolsets", "tools", "limits", "image", "docker_image", "cwd", "files", "id")


class BadPrompt(StemmaError):
    """A row that cannot be asked."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to ask."""

    index: int
    """Its place in the dataset, from 0."""
    key: str
    """The hash of all it says: equal rows have equal keys, wherever they stand."""
    turns: tuple[tuple[dict[str, Any], ...], ...]
    """What is said, turn by turn; the model answers after each."""
    system: str | None = None
    toolsets: tuple[str, ...] | None = None
    limits: Limits | None = None
    image: str | None = None
    cwd: str | None = None
    files: dict[str, str] = {}
    id: str | None = None
    metadata: dict[str, Any] = {}
    """All other columns."""

    @property
    def text(self) -> str:
        """The first thing the user says, for people to recognise the row by."""
        said = (m for turn in self.turns for m in turn if m.get("role") == "user")
        return str(next(said, {}).get("content") or "")


def read_rows(prompts: Prompts) -> Iterator[Row]:
    """The rows, numbered; `BadPrompt` names the first that cannot be asked."""
    where = f"{prompts}, " if isinstance(prompts, str | Path) else ""
    found = read_table(Path(prompts)) if isinstance(prompts, str | Path) else prompts
    for index, row in enumerate(found):
        yield as_row(row, index, where)


def as_row(given: str | Mapping[str, Any], index: int, where: str = "") -> Row:
    """The row that a text or an object is.

    >>> as_row({"prompt": ["Hi!", "And?"], "level": 3}, 0).metadata
    {'level': 3}
    """
    try:
        return _row({"prompt": given} if isinstance(given, str) else plain(dict(given), "row"), index)
    except (BadMessage, BadPrompt, msgspec.ValidationError, TypeError, ValueError) as problem:
        raise BadPrompt(f"{where}row {index + 1}: {problem}") from problem


def _row(given: dict[str, Any], index: int) -> Row:
    turns = _turns(given.get("prompt"))
    system, turns = _system_first(given.get("system"), turns)
    names = given.get("toolsets", given.get("tools"))
    return Row(
        index=index,
        key=digest("row", canonical(given)).hex()[:16],
        turns=turns,
        system=_text_or_none(system, "system"),
        toolsets=None if names is None else tuple(_names(names)),
        limits=_limits(given.get("limits")),
        image=_text_or_none(given.get("image") or given.get("docker_image"), "image"),
        cwd=_text_or_none(given.get("cwd"), "cwd"),
        files=_files(given.get("files") or {}),
        id=None if given.get("id") is None else str(given["id"]),
        metadata={name: value for name, value in given.items() if name not in _OWN},
    )


def _turns(prompt: Any) -> tuple[tuple[dict[str, Any], ...], ...]:
    if isinstance(prompt, str) and prompt.strip():
        return (({"role": "user", "content": prompt},),)
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) and one.strip() for one in prompt):
        return tuple(({"role": "user", "content": one},) for one in prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(one, dict) and one.get("role") for one in prompt):
        _check_exportable(prompt)
        return (tuple(prompt),)
    raise BadPrompt(
        "`prompt` is a text, a list of texts (asked one after the other), or a list of messages with roles; "
        f"got {prompt!r:.60}"
    )


def _check_exportable(messages: list[dict[str, Any]]) -> None:
    """What no file could carry at the end is not asked, and not paid for."""
    try:
        to_trajectory(messages)
    except Exception as problem:
        raise BadPrompt(f"its messages cannot be written as a trajectory: {problem}") from problem


def _system_first(system: Any, turns: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A system message at the head of the prompt is the row's system prompt."""
    first = turns[0][0]
    if first.get("role") != "system":
        return system, turns
    if system is not None:
        raise BadPrompt("the row has a `system` and its prompt begins with a system message; give one of the two")
    if len(turns[0]) == 1:
        raise BadPrompt("the prompt has a system message and nothing to answer")
    return first.get("content"), ((*turns[0][1:],), *turns[1:])


def _text_or_none(value: Any, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise BadPrompt(f"`{name}` is a text; got {value!r:.60}")


def _names(value: Any) -> list[str]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadPrompt(f"`toolsets` is a list of names; got {value!r:.60}")
    return [name.strip() for name in names if name.strip()]


def _limits(value: Any) -> Limits | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadPrompt(f'`limits` is an object such as {{"turns": 5}}; got {value!r:.60}')
    known = Limits.__struct_fields__
    if unknown := [key for key in value if key not in known]:
        raise BadPrompt(f"`limits` has no key {unknown[0]!r}; it takes {', '.join(known)}")
    for key, limit in value.items():
        if type(limit) in (int, float) and limit <= 0:
            raise BadPrompt(f"`limits` has {key}: {limit}; a limit is greater than 0, and null means none")
    return msgspec.convert(value, Limits) if value else None


def _files(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise BadPrompt("`files` is an object of path and text")
    for path in value:
        parts = path.split("/")
        if path.startswith("/") or ".." in parts or not any(part not in ("", ".") for part in parts):
            raise BadPrompt(f"`files` names {path!r}, which does not lie inside the working folder")
    return value
