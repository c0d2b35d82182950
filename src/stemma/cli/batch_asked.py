"""What a batch was asked to do, in a form that a file keeps: the run's `config.yaml` repeats the run.

    stemma batch prompts.jsonl -m fast -r 8          writes runs/prompts-fast/config.yaml
    stemma batch --config runs/prompts-fast/config.yaml --name again

Flags go over what the file says. `tests/cli/test_batch.py` proves it.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import typer
import yaml

from stemma.cli.agent_options import AgentFlags
from stemma.cli.settings import Settings
from stemma.formats.yaml_files import read_yaml
from stemma.redact import MASK, without_secrets

_KEPT_SECTIONS = ("agent", "sandbox", "web")
_PROMPTS = ("agent.system", "agent.ephemeral")
"""What a model is told is kept as it is told."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A batch as asked for."""

    prompts: str
    name: str | None = None
    samples: int = 1
    concurrency: int | None = None
    processes: int | None = None
    first: int | None = None
    slice: str | None = None
    filter: str | None = None
    seed: int | None = None
    distribution: str | None = None
    distributions: str | None = None
    budget: str | None = None
    timeout: float | None = None
    batch_size: int = 100
    reward: str | None = None
    keep_no_reasoning: bool = False
    keep_unknown_tools: bool = False
    settings: dict[str, Any] = {}
    """Dotted settings that were given."""
    base_url: str | None = None
    params: dict[str, Any] = {}
    """Sampling parameters."""


def asked_again(config: Path | None, given: dict[str, Any], flags: AgentFlags) -> Asked:
    """What is asked: a file's word, with the flags over it."""
    before = _kept(config) if config is not None else {}
    now = {key: value for key, value in given.items() if value is not None}
    settings = {**before.get("settings", {}), **flags.settings}
    if flags.workspace is not None:
        raise typer.BadParameter("each conversation of a batch has its own folder; a row's `cwd` names what to copy")
    now |= {"settings": settings, "params": {**before.get("params", {}), **flags.params}}
    now["base_url"] = flags.base_url or before.get("base_url")
    if not (now.get("prompts") or before.get("prompts")):
        raise typer.BadParameter("name a file of prompts, or --config of an earlier run")
    try:
        asked = msgspec.convert({**before, **now}, Asked)
    except msgspec.ValidationError as problem:
        raise typer.BadParameter(f"{config or 'the options'}: {problem}") from problem
    if MASK in f"{asked.base_url} {asked.params}":
        what = "--base-url" if MASK in str(asked.base_url) else "--param"
        raise typer.BadParameter(f"a secret was left out of {config}; give it again with {what}")
    return asked


def _kept(config: Path) -> dict[str, Any]:
    """What a run's config.yaml says."""
    text = config.read_bytes()
    read_yaml(text, str(config))  # refuses what could mean two things, and says in which line
    found = yaml.safe_load(text)
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{config} is no config.yaml of a run")
    said = found.get("settings") or {}
    if not isinstance(said, dict):
        raise typer.BadParameter(f"{config}: settings must be a mapping")
    # A setting with a secret in it was not written as it is; the config that said it still does.
    whole = {key: value for key, value in said.items() if key in _PROMPTS or MASK not in str(value)}
    return {**found, "settings": whole}


def as_yaml(asked: Asked, settings: Settings) -> bytes:
    """The file that repeats the run, whatever the config files say by then; secrets are left out of it."""
    resolved = {
        f"{section}.{key}": value
        for section in _KEPT_SECTIONS
        for key, value in settings.section(section).items()
        if value is not None
    }
    said = {"model": settings.get("model"), **resolved, **asked.settings}
    kept = msgspec.structs.replace(
        asked,
        settings={key: value if key in _PROMPTS else without_secrets(value) for key, value in said.items()},
        base_url=without_secrets(asked.base_url),
        params=without_secrets(asked.params),
    )
    text: str = yaml.safe_dump(msgspec.to_builtins(kept), sort_keys=False, allow_unicode=True)
    return text.encode("utf-8", "backslashreplace")


def run_name(asked: Asked, settings: Settings) -> str:
    """The run's name: the same for the same command, so that the command again is the run again."""
    if asked.name:
        return asked.name
    source = "stdin" if asked.prompts == "-" else Path(asked.prompts).name.split(".")[0]
    model = str(settings.get("model") or "").rsplit("/", 1)[-1]
    return re.sub(r"[^\w.-]+", "-", f"{source}-{model}").strip("-")


def free_name(folder: Path, name: str) -> str:
    """The first of NAME-2, NAME-3, … that no run has."""
    number = 2
    while (folder / f"{name}-{number}").exists():
        number += 1
    return f"{name}-{number}"


def bounds(text: str | None) -> tuple[int | None, int | None]:
    """A slice as people write it.

    >>> bounds("10:20"), bounds(":5"), bounds(None)
    ((10, 20), (None, 5), (None, None))
    """
    if text is None:
        return None, None
    found = re.fullmatch(r"(\d*):(\d*)", text.strip())
    if found is None:
        raise typer.BadParameter(f"--slice {text!r}: write it as A:B, such as 0:100")
    return (int(found[1]) if found[1] else None, int(found[2]) if found[2] else None)


def matcher(pattern: str | None) -> Callable[[Any], bool] | None:
    """Whether a row's prompt or id matches."""
    if pattern is None:
        return None
    try:
        wanted = re.compile(pattern)
    except re.error as problem:
        raise typer.BadParameter(f"--filter {pattern!r} is no regular expression: {problem}") from problem
    return lambda row: bool(wanted.search(row.text) or (row.id and wanted.search(row.id)))


def spooled(asked: Asked, folder: Path) -> Asked:
    """Prompts from standard input are kept with the run, which needs them again when it is taken up."""
    if asked.prompts != "-":
        return asked
    from stemma.formats.export import write_whole

    kept = folder / "prompts.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(kept, sys.stdin.buffer.read())
    return msgspec.structs.replace(asked, prompts=str(kept))
