"""The options that make an agent, in one table: a command that runs agents takes all of them.

    @takes_agent_flags
    def chat(flags: AgentFlags, …) -> None:

Most flags are settings and go over what config files say; `None` was not given. `tests/cli/test_chat.py` uses them.
"""

import inspect
import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer


class AgentFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of the agent."""

    settings: dict[str, Any] = {}
    """Dotted setting → value, for those that were given."""
    base_url: str | None = None
    params: dict[str, Any] = {}
    """Sampling parameters."""
    workspace: Path | None = None


class _Flag(NamedTuple):
    """A parameter of the command, the setting it sets if it is one, and how it is typed."""

    name: str
    setting: str | None
    type: Any


def _option(kind: Any, *names: str, metavar: str | None = None, help: str) -> Any:
    return Annotated[kind, typer.Option(*names, metavar=metavar, help=help)]


_TEXT, _NUMBER, _SWITCH = str | None, float | None, bool | None

_FLAGS = (
    _Flag(
        "model", "model", _option(_TEXT, "--model", "-m", help="The model: a configured name, provider/model, local.")
    ),
    _Flag("base_url", None, _option(_TEXT, "--base-url", metavar="URL", help="An OpenAI-compatible endpoint.")),
    _Flag(
        "toolsets", "agent.toolsets", _option(_TEXT, "--toolsets", metavar="A,B", help="Toolsets or tools to offer.")
    ),
    _Flag(
        "tools", "agent.tools", _option(list[str] | None, "--tools", metavar="FILE", help="A file of your own tools.")
    ),
    _Flag("system", "agent.system", _option(_TEXT, "--system", help="The system prompt.")),
    _Flag(
        "ephemeral",
        "agent.ephemeral",
        _option(_TEXT, "--ephemeral-system-prompt", help="Sent behind the system prompt, never exported."),
    ),
    _Flag(
        "prefill",
        "agent.prefill",
        _option(_TEXT, "--prefill", metavar="FILE", help="A JSON file of messages to send first."),
    ),
    _Flag("turns", "agent.turns", _option(int | None, "--turns", help="Most model calls of one turn.")),
    _Flag("temperature", None, _option(_NUMBER, "--temperature", help="The sampling temperature.")),
    _Flag(
        "param",
        None,
        _option(list[str] | None, "--param", metavar="K=V", help="A sampling parameter; V as JSON or text."),
    ),
    _Flag("sandbox", "sandbox.kind", _option(_TEXT, "--sandbox", metavar="KIND", help="bubblewrap, or none.")),
    _Flag("image", "sandbox.image", _option(_TEXT, "--image", help="A container image to run commands in.")),
    _Flag(
        "network", "sandbox.network", _option(_SWITCH, "--network/--no-network", help="Let commands use the network.")
    ),
    _Flag(
        "workspace",
        None,
        _option(
            Path | None,
            "--workspace",
            metavar="FOLDER",
            help="Where tools work; else a fresh folder, removed at the end.",
        ),
    ),
    _Flag(
        "save_trajectories",
        "agent.save_trajectories",
        _option(_SWITCH, "--save-trajectories/--no-save-trajectories", help="Write trajectory_samples.jsonl, too."),
    ),
)


def takes_agent_flags(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with all options of an agent, which it gets as one value, `flags`."""

    @wraps(command)
    def taking(**given: Any) -> None:
        values = {flag.name: given.pop(flag.name) for flag in _FLAGS}
        command(flags=_flags(values), **given)

    own = [p for name, p in inspect.signature(command, eval_str=True).parameters.items() if name != "flags"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    ours = [inspect.Parameter(flag.name, keyword, default=None, annotation=flag.type) for flag in _FLAGS]
    parameters = [*(p.replace(kind=keyword) for p in own), *ours]
    taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    taking.__annotations__ = {p.name: p.annotation for p in parameters}
    return taking


def _flags(values: dict[str, Any]) -> AgentFlags:
    named = values["toolsets"]
    values["toolsets"] = None if named is None else [name.strip() for name in named.split(",") if name.strip()]
    values["tools"] = values["tools"] or None
    return AgentFlags(
        settings={flag.setting: values[flag.name] for flag in _FLAGS if flag.setting and values[flag.name] is not None},
        base_url=values["base_url"],
        params=_params(values),
        workspace=values["workspace"],
    )


def _params(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in values["param"] or ():
        key, sign, value = text.partition("=")
        if not (key and sign):
            raise typer.BadParameter(f"--param {text!r}: write it as name=value")
        if key in found:
            raise typer.BadParameter(f"--param {key} is given twice")
        found[key] = _json_or_text(value)
    if values["temperature"] is not None:
        if "temperature" in found:
            raise typer.BadParameter("the temperature is given twice: by --temperature and by --param")
        found["temperature"] = values["temperature"]
    return found


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
