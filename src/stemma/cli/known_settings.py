"""Every setting there is: its key, its type, its default, and one line of help.

A `*` in a key stands for a name that the user gives: `models.*.base_url` is `models.fast.base_url` for the model called
`fast`. Such a name may hold dots. Defaults are those of the parts that read them; `tests/cli/test_settings.py` compares
them. The `risk` of a setting says whether a project's file may set it only once the user trusts it (`cli/trust.py`).
"""

import os
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from stemma.errors import StemmaError

Parts = tuple[str, ...]
"""A key, cut at its dots; a name is one part."""


class UnknownSetting(StemmaError, LookupError):
    """A key that is no setting."""


class Risk(Enum):
    """What a project's config file could do with a setting, so that the user must trust the file first."""

    NONE = ""
    PROGRAMS = "starts programs or loads code"
    KEYS = "decides where keys and conversations are sent"
    SANDBOX = "opens the sandbox or lifts its limits"
    FILES = "names files of this machine"
    MONEY = "decides what may be spent"


class Setting(msgspec.Struct, frozen=True):
    """One row of the table."""

    key: str
    type: Any
    default: Any
    help: str
    risk: Risk
    harmless: Callable[[Any, Path], bool] = lambda value, project: False
    """Values without that risk, by the project whose file says it."""
    paths: bool = False
    """Names files: a relative one in a config file is meant from that file's project."""
    secret: bool = False
    """A mapping whose values may be secret: only its keys are shown."""
    flag: str = ""
    """The flag that sets it, where it is not named like the last part of the key."""

    def parts(self, name: str) -> Parts:
        """The parts of the key, with the user's name for the star."""
        return tuple(name if part == "*" else part for part in self.key.split("."))


_Text = str | None
_Whole = int | None
_Number = float | None
_Variable = Annotated[str, msgspec.Meta(pattern="^[A-Z_][A-Z0-9_]*$")] | None
"""In capitals, as nearly all are: so a key that was put there by mistake is noticed, and not shown."""


def _names_no_file(model: str | None, _: Path) -> bool:
    return model is None or not (model.endswith(".gguf") or model.startswith("scripted:"))


def _in_project(path: str, project: Path) -> bool:
    inner = os.path.relpath(os.path.realpath(project / Path(path).expanduser()), os.path.realpath(project))
    return not {"..", ".git", ".stemma"} & set(Path(inner).parts)


def _is_sandboxed(toolsets: list[str], _: Path) -> bool:
    from stemma.tools.toolsets import TOOL_TO_TOOLSET_MAP

    shipped = {"safe", *TOOL_TO_TOOLSET_MAP, *TOOL_TO_TOOLSET_MAP.values()}
    return all(name in shipped and TOOL_TO_TOOLSET_MAP.get(name, name) != "web" for name in toolsets)


def _is_closed(kind: str, _: Path) -> bool:
    return kind != "none"


def _is_off(value: bool, _: Path) -> bool:
    return not value


_SAMPLING = frozenset(
    (
        "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "stop", "n", "max_tokens",
        "max_completion_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty",
        "logprobs", "top_logprobs", "reasoning_effort", "verbosity",
    )
)  # fmt: skip


def _only_sampling(params: dict[str, Any], _: Path) -> bool:
    """All else goes to the endpoint as it is, and could name servers that it is to ask."""
    return params.keys() <= _SAMPLING


KNOWN = (
    Setting(
        "model",
        _Text,
        None,
        "The model to ask: a name below `models`, provider/model, local, or a GGUF file.",
        Risk.FILES,
        harmless=_names_no_file,
    ),
    Setting(
        "store",
        str,
        "stemma.db",
        "The store that conversations are kept in.",
        Risk.FILES,
        harmless=_in_project,
        paths=True,
    ),
    Setting("agent.system", str, "", "The system prompt.", Risk.NONE),
    Setting(
        "agent.ephemeral",
        str,
        "",
        "Sent behind the system prompt, never exported.",
        Risk.NONE,
        flag="ephemeral-system-prompt",
    ),
    Setting(
        "agent.prefill", _Text, None, "A JSON file of messages sent before the conversation.", Risk.FILES, paths=True
    ),
    Setting(
        "agent.toolsets",
        list[str],
        ["file", "terminal", "todo"],
        "Tools the model is offered: toolsets or single tools.",
        Risk.SANDBOX,
        harmless=_is_sandboxed,
    ),
    Setting("agent.tools", list[str], [], "Python files with tools of your own.", Risk.PROGRAMS, paths=True),
    Setting("agent.tool_seconds", float, 120.0, "Most seconds of one call of a tool of your own.", Risk.NONE),
    Setting(
        "agent.tool_output_chars",
        int,
        30_000,
        "How much of the result of a tool of your own the model gets.",
        Risk.NONE,
    ),
    Setting("agent.save_trajectories", bool, False, "Write each conversation to trajectory_samples.jsonl.", Risk.NONE),
    Setting(
        "agent.turns",
        _Whole,
        60,
        "Most model calls of one conversation and its subagents; null: no limit.",
        Risk.NONE,
    ),
    Setting("agent.tokens", _Whole, None, "Most tokens of one conversation and its subagents.", Risk.NONE),
    Setting("agent.seconds", _Number, None, "Most seconds of one conversation and its subagents.", Risk.NONE),
    Setting("agent.cost", _Number, None, "Most US dollars of one conversation and its subagents.", Risk.MONEY),
    Setting(
        "agent.compaction_threshold",
        float,
        0.8,
        "The share of the window at which the context is summarised.",
        Risk.NONE,
    ),
    Setting("agent.compaction_keep_last", int, 6, "How many last messages a summary leaves as they are.", Risk.NONE),
    Setting(
        "sandbox.kind",
        Literal["auto", "bubblewrap", "none"],
        "auto",
        "What fences commands in.",
        Risk.SANDBOX,
        harmless=_is_closed,
        flag="sandbox",
    ),
    Setting("sandbox.image", _Text, None, "A container image to run commands in, by docker or podman.", Risk.SANDBOX),
    Setting("sandbox.network", bool, False, "Whether commands may use the network.", Risk.SANDBOX, harmless=_is_off),
    Setting("sandbox.seconds", float, 120.0, "Most seconds of one command.", Risk.SANDBOX),
    Setting(
        "sandbox.memory_mb",
        int,
        4096,
        "Most memory of one process; of all together where a control group or container counts it.",
        Risk.SANDBOX,
    ),
    Setting("sandbox.processes", int, 512, "Most processes at once.", Risk.SANDBOX),
    Setting("sandbox.file_mb", int, 1024, "The largest file a command may write.", Risk.SANDBOX),
    Setting("sandbox.output_chars", int, 30_000, "How much of a command's output the model gets.", Risk.SANDBOX),
    Setting("web.provider", str, "searxng", "Whose search: searxng, or a provider with a key.", Risk.KEYS),
    Setting("web.search_url", str, "", "Where a SearXNG instance is, or another address for a provider.", Risk.KEYS),
    Setting("web.api_key_env", _Variable, None, "The environment variable that holds the provider's key.", Risk.KEYS),
    Setting("mcp.*.command", _Text, None, "The program of an MCP server.", Risk.PROGRAMS),
    Setting("mcp.*.args", list[str], [], "Its arguments.", Risk.PROGRAMS),
    Setting("mcp.*.env", dict[str, str], {}, "Its environment, beside PATH.", Risk.PROGRAMS, secret=True),
    Setting("mcp.*.url", _Text, None, "The address of an MCP server that runs already.", Risk.KEYS),
    Setting("mcp.*.headers", dict[str, str], {}, "HTTP headers to send to it.", Risk.KEYS, secret=True),
    Setting("models.*.base_url", _Text, None, "Where an OpenAI-compatible endpoint is, up to /v1.", Risk.KEYS),
    Setting(
        "models.*.model", _Text, None, "The name under which the endpoint serves it, or provider/model.", Risk.KEYS
    ),
    Setting("models.*.api_key_env", _Variable, None, "The environment variable that holds the key.", Risk.KEYS),
    Setting("models.*.path", _Text, None, "A GGUF file, to be run in this process.", Risk.FILES, paths=True),
    Setting("models.*.context_window", _Whole, None, "How many tokens fit.", Risk.NONE),
    Setting(
        "models.*.protocol",
        Literal["native", "hermes", "tokens"],
        "native",
        "How tools are told: by the API, as text, or token by token to a llama.cpp server.",
        Risk.NONE,
    ),
    Setting(
        "models.*.params",
        dict[str, Any],
        {},
        "Sampling parameters: temperature, max_tokens, …",
        Risk.KEYS,
        harmless=_only_sampling,
    ),
    Setting("models.*.headers", dict[str, str], {}, "HTTP headers to send.", Risk.KEYS, secret=True),
    Setting("models.*.extra_body", dict[str, Any], {}, "Whatever else the endpoint wants in the request.", Risk.KEYS),
    Setting("models.*.reasoning_field", _Text, None, "The field in which earlier reasoning is sent back.", Risk.NONE),
    Setting(
        "models.*.tokens",
        Literal["vllm", "sglang", "llama.cpp"] | None,
        None,
        "Ask this engine for token ids.",
        Risk.NONE,
    ),
    Setting("models.*.prices.prompt", _Number, None, "US dollars for a million prompt tokens.", Risk.MONEY),
    Setting("models.*.prices.completion", _Number, None, "US dollars for a million sampled tokens.", Risk.MONEY),
    Setting(
        "models.*.prices.cached", _Number, None, "US dollars for a million prompt tokens that were cached.", Risk.MONEY
    ),
    Setting("models.*.timeouts.connect", float, 10.0, "Seconds to a connection.", Risk.NONE),
    Setting("models.*.timeouts.first_byte", float, 600.0, "Seconds to the first byte of a reply.", Risk.NONE),
    Setting("models.*.timeouts.between_bytes", float, 120.0, "Seconds from one byte to the next.", Risk.NONE),
    Setting("models.*.timeouts.total", float, 1800.0, "Seconds for a reply in all, with retries.", Risk.NONE),
    Setting("models.*.retries.attempts", int, 5, "How often to ask in all.", Risk.NONE),
    Setting(
        "models.*.retries.first",
        float,
        0.5,
        "Seconds before the second attempt; then twice as many each time.",
        Risk.NONE,
    ),
    Setting("models.*.retries.longest", float, 60.0, "The longest wait, whatever an endpoint asks for.", Risk.NONE),
)

NAMED = ("mcp", "models")
"""Groups below which the user gives names."""
GROUPS = {".".join(setting.key.split(".")[:n]) for setting in KNOWN for n in range(1, setting.key.count(".") + 1)}
"""What stands above settings: `agent`, `models`, `models.*`, `models.*.prices`, …"""


_WITHOUT_A_NAME = {setting.key: setting for setting in KNOWN if "*" not in setting.key}
_WITH_A_NAME = [setting for setting in KNOWN if "*" in setting.key]


def known(key: str) -> tuple[Setting, Parts]:
    """The setting that `key` is, and the key's parts; the name in it is one part, dots or not.

    >>> known("models.qwen2.5.prices.prompt")[1]
    ('models', 'qwen2.5', 'prices', 'prompt')
    """
    if (setting := _WITHOUT_A_NAME.get(key)) is not None:
        return setting, setting.parts(key)
    for setting in _WITH_A_NAME:
        if found := _match(setting.key, key):
            return setting, setting.parts(found)
    raise UnknownSetting(f"there is no setting {key!r}{nearest(key)}")


def parts_of_group(key: str) -> Parts:
    """The parts of what stands above settings, such as `sandbox` or `models.fast`."""
    for group in sorted(GROUPS, key=len, reverse=True):  # `models.*.prices` before `models.*`, which fits as well
        if found := _match(group, key):
            return tuple(found if part == "*" else part for part in group.split("."))
    raise UnknownSetting(f"there are no settings below {key!r}{nearest(key, GROUPS)}")


def _match(pattern: str, key: str) -> str | None:
    """The name that stands in `key` for the star of `pattern`, or `key` itself where there is no star."""
    found = re.fullmatch(re.escape(pattern).replace(r"\*", "(?P<name>.+)"), key, re.DOTALL)
    return found.groupdict().get("name", key) if found else None


def nearest(key: str, among: Iterable[str] | None = None) -> str:
    """`; do you mean …?`, where something is near.

    >>> nearest("agent.save_trajectory")
    '; do you mean agent.save_trajectories?'
    >>> nearest("turns")
    '; do you mean agent.turns?'
    """
    keys = [setting.key for setting in KNOWN] if among is None else list(among)
    by_end = {whole.split(".")[-1]: whole for whole in keys}
    end = key.rpartition(".")[2]
    close = get_close_matches(key, keys, n=1) or [by_end[near] for near in get_close_matches(end, by_end, n=1)]
    return f"; do you mean {close[0]}?" if close else ""


def wanted(kind: Any) -> str:
    """What a value of this type looks like, for people.

    >>> wanted(int | None), wanted(list[str])
    ('a whole number or null', 'a list of texts')
    """
    return _WANTED.get(kind) or "one of " + ", ".join(_choices(kind))


def _choices(kind: Any) -> list[str]:
    if hasattr(kind, "__args__"):
        return [choice for part in kind.__args__ for choice in _choices(part)]
    return ["null"] if kind is type(None) else [str(kind)]


_WANTED: dict[Any, str] = {
    str: "a text",
    _Text: "a text or null",
    _Variable: "the name of an environment variable, in capitals",
    bool: "true or false",
    int: "a whole number",
    _Whole: "a whole number or null",
    float: "a number",
    _Number: "a number or null",
    list[str]: "a list of texts",
    dict[str, str]: "a mapping of names to texts",
    dict[str, Any]: "a mapping",
}
