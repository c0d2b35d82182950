"""Which project files the user trusts: `stemma config trust`, as direnv and git's safe.directory have it.

A project's `.stemma/config.yaml` comes with a repository, or from whoever could write there. One whose settings can
start programs, say where keys go, open the sandbox, name files or lift a limit on money (`Setting.risk`) is read only
once the user has trusted exactly this content; one without such settings is read as it is. Trust is a digest of the
file, and of those files in the project that it has loaded or run: the files of `agent.tools`, and commands and
arguments of MCP servers that are files. What these read themselves is not covered. The digests are kept in the user's
own folder, one file for each project, for the user's eyes only. `tests/cli/test_trust.py` proves it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import NamedTuple

from stemma.cli.known_settings import Parts, Risk
from stemma.cli.places import user_state
from stemma.cli.setting_sources import Said, project_of, said_in
from stemma.errors import StemmaError


class Untrusted(StemmaError, PermissionError):
    """A project's config file with settings that need the user's trust."""

    def __str__(self) -> str:
        return str(self.args[0])


class Risky(NamedTuple):
    """A setting that needs the user's trust."""

    key: str
    line: int
    risk: Risk


class Project(NamedTuple):
    """A project's config file, as it was read."""

    file: Path
    risky: list[Risky]
    digest: str


def read_project(file: Path, content: bytes, folder: Path) -> Project:
    """What of a project's file needs trust."""
    said, project = list(said_in(file, content, folder)), project_of(file)
    risky = [
        Risky(".".join(one.parts), one.line, one.setting.risk)
        for one in said
        if one.setting.risk is not Risk.NONE and not one.setting.harmless(one.value, project)
    ]
    return Project(file, risky, _digest(content, sorted(set(_named_files(said, project)))))


def check_trust(project: Project, environ: Mapping[str, str]) -> None:
    """Raise `Untrusted` if a file needs trust and does not have it."""
    if not project.risky or is_trusted(project, environ):
        return
    known = _record(project.file, environ).exists()
    why = "has changed since you trusted it, or a file that it names has" if known else "is not trusted"
    named = "; ".join(f"{one.key} in line {one.line} {one.risk.value}" for one in project.risky)
    raise Untrusted(f"{project.file} {why}: {named}. Read it, then run `stemma config trust`")


def is_trusted(project: Project, environ: Mapping[str, str]) -> bool:
    """Whether the user has trusted exactly this."""
    with suppress(FileNotFoundError):
        return _record(project.file, environ).read_text().split("\n", 1)[0] == project.digest
    return False


def trust(project: Project, environ: Mapping[str, str]) -> None:
    """Trust a file as it is now, in place of what it was before."""
    record = _record(project.file, environ)
    record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = record.with_suffix(f".{os.getpid()}")
    with suppress(FileNotFoundError):
        partial.unlink()
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as target:
        target.write(f"{project.digest}\n{_real(project.file)}\n")
    partial.replace(record)


def revoke(file: Path, environ: Mapping[str, str]) -> bool:
    """Trust a file no longer; whether it was trusted, in this form or an earlier one."""
    try:
        _record(file, environ).unlink()
    except FileNotFoundError:
        return False
    return True


def trusted_files(environ: Mapping[str, str]) -> list[str]:
    """The files that are trusted, each in one form."""
    records = (file for file in _folder(environ).glob("*") if not file.suffix)
    return sorted(file.read_text().split("\n", 2)[1] for file in records)


def _folder(environ: Mapping[str, str]) -> Path:
    return user_state(environ) / "trusted"


def _record(file: Path, environ: Mapping[str, str]) -> Path:
    return _folder(environ) / sha256(os.fsencode(_real(file))).hexdigest()


def _real(file: Path) -> str:
    return os.path.realpath(file)


def _digest(content: bytes, named: list[Path]) -> str:
    parts = [sha256(content).digest()]
    for path in named:
        with path.open("rb") as file:
            parts += [sha256(os.fsencode(path)).digest(), file_digest(file, "sha256").digest()]
    return sha256(b"".join(parts)).hexdigest()


def _named_files(said: list[Said], project: Path) -> Iterator[Path]:
    """The files in the project that its settings have loaded or run."""
    for one in said:
        names = one.value if isinstance(one.value, list) else [one.value]
        if _runs_files(one.parts):
            for name in filter(None, names):
                place = Path(os.path.realpath(project / Path(name).expanduser()))
                if place.is_relative_to(_real(project)) and place.is_file():
                    yield place


def _runs_files(parts: Parts) -> bool:
    return parts == ("agent", "tools") or (parts[0] == "mcp" and parts[-1] in ("command", "args"))
