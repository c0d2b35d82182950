"""Which model answers: what `-m` and `--base-url` mean.

    fast                     a model named in the config, below `models`
    groq/llama-3.1-8b        a model of a provider that is known here; its key is in the environment
    NAME --base-url URL      a model at any OpenAI-compatible endpoint
    local                    the embedded model, fetched by `stemma models get`
    path/to/model.gguf       any GGUF file, in this process
    scripted:replies.jsonl   replies from a file, one a line: a text, or an assistant message

Nothing is asked and no model is loaded before the first question. `tests/cli/test_choosing.py` proves it.
"""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stemma.cli.places import user_cache
from stemma.cli.settings import Settings
from stemma.errors import StemmaError
from stemma.redact import environment_secrets, secrets_in

if TYPE_CHECKING:
    from stemma.models.protocol import Model

SCRIPTED = "scripted:"
LOCAL = "local"


class NoModel(StemmaError, LookupError):
    """No model can be chosen by what was said; the message lists the ways."""


class Provider(NamedTuple):
    """Where a provider's endpoint is, and which variable holds the key."""

    base_url: str
    api_key_env: str


PROVIDERS = {
    "anthropic": Provider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "cerebras": Provider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepinfra": Provider("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": Provider("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "moonshot": Provider("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "nous": Provider("https://inference-api.nousresearch.com/v1", "NOUS_API_KEY"),
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": Provider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY"),
}

WAYS = (
    "-m NAME of a model in the config, -m PROVIDER/MODEL (" + ", ".join(PROVIDERS) + "), -m MODEL --base-url URL, "
    "-m local (after `stemma models get`), -m FILE.gguf, or -m scripted:FILE.jsonl"
)


def choose_model(settings: Settings, name: str | None = None, base_url: str | None = None) -> "Model":
    """The model that is meant by `name`, or by the setting `model`."""
    name = name or settings.get("model")
    named = settings.section("models")
    if not name:
        raise NoModel(f"no model was named; give {WAYS}; or set `model` in the config")
    if name in named:
        return _configured(name, named[name] | ({"base_url": base_url} if base_url else {}))
    if base_url:
        return _endpoint({"model": name, "base_url": base_url}, name)
    return _unconfigured(name, [*named, LOCAL, *PROVIDERS])


def credentials(settings: Settings, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Every secret of ours: what no tool may show, and no file or screen. Keys in the environment and in the config."""
    models, servers = settings.section("models").values(), settings.section("mcp").values()
    variables = {settings.get("web.api_key_env"), *(model["api_key_env"] for model in models)}
    variables |= {provider.api_key_env for provider in PROVIDERS.values()}
    found = {environ.get(name or "", "").strip() for name in variables} | set(environment_secrets(environ))
    sent = [model[key] for model in models for key in ("headers", "base_url")]
    sent += [server[key] for server in servers for key in ("env", "headers", "url")]
    found |= set(secrets_in([*sent, settings.get("web.search_url")], opaque=True))
    rest = [*(model[key] for model in models for key in ("params", "extra_body")), *(one["args"] for one in servers)]
    return sorted((found | set(secrets_in(rest))) - {""})


def embedded_model() -> Path:
    """Where the embedded model is, or would be."""
    from stemma.models.fetching import SMOLLM2, place_of

    return place_of(SMOLLM2, user_cache(os.environ) / "models")


def _configured(name: str, entry: dict[str, Any]) -> "Model":
    """The model of one entry below `models`."""
    if entry["path"] and entry["base_url"]:
        raise NoModel(f"models.{name} has both a path and a base_url; it is one or the other")
    if entry["path"]:
        return _local(Path(entry["path"]), entry)
    if entry["base_url"]:
        return _endpoint(entry, name)
    provider, _, model = str(entry["model"] or "").partition("/")
    if provider not in PROVIDERS or not model:
        raise NoModel(f"models.{name} does not say where it is: give base_url, path, or a model such as openai/gpt-5")
    return _endpoint(
        _at(provider, model) | {key: value for key, value in entry.items() if value and key != "model"}, name
    )


def _unconfigured(name: str, names: list[str]) -> "Model":
    if name.startswith(SCRIPTED):
        return _scripted(Path(name.removeprefix(SCRIPTED)))
    if name == LOCAL:
        return _embedded()
    if name.endswith(".gguf"):
        return _local(Path(name).expanduser(), {})
    provider, _, model = name.partition("/")
    if provider in PROVIDERS and model:
        return _endpoint(_at(provider, model), name)
    near = get_close_matches(provider, names, n=1)
    raise NoModel(f"there is no model {name!r}{f'; do you mean {near[0]}?' if near else ''}; give {WAYS}")


def _at(provider: str, model: str) -> dict[str, Any]:
    return {"model": model, **PROVIDERS[provider]._asdict()}


def _key_env_at(base_url: str) -> str | None:
    """The variable of a known provider that is at this address; any other endpoint needs no key unless configured."""
    return next((p.api_key_env for p in PROVIDERS.values() if f"{base_url}/".startswith(f"{p.base_url}/")), None)


# ── kinds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _endpoint(entry: Mapping[str, Any], name: str) -> "Model":
    key = _key(entry.get("api_key_env") or _key_env_at(entry["base_url"]), name)
    if entry.get("protocol") == "tokens":
        from stemma.models.llama_server import LlamaServerModel

        given = {given: entry[given] for given in ("context_window", "params") if entry.get(given)}
        return LlamaServerModel(entry["model"] or name, entry["base_url"], key, **given)
    from stemma.models.hermes_model import HermesModel
    from stemma.models.openai_api import OpenAIModel
    from stemma.models.prices import Prices
    from stemma.models.retry import Retries
    from stemma.models.wire import Deadlines

    as_given = ("params", "headers", "extra_body", "reasoning_field", "tokens", "context_window")
    model = OpenAIModel(
        entry["model"] or name,
        entry["base_url"],
        key,
        **{given: entry[given] for given in as_given if entry.get(given)},
        prices=_prices(entry.get("prices", {}), name, Prices),
        deadlines=Deadlines(**entry.get("timeouts", {})),
        retries=Retries(**entry.get("retries", {})),
    )
    return HermesModel(model) if entry.get("protocol") == "hermes" else model


def _key(variable: str | None, name: str) -> str | None:
    key = os.environ.get(variable) if variable else None
    if variable and not key:
        raise NoModel(f"the key for {name!r} is to be in the environment variable {variable}, which is not set")
    return key


def _prices(said: Mapping[str, Any], name: str, kind: Any) -> Any:
    given = {key: value for key, value in said.items() if value is not None}
    if given and not {"prompt", "completion"} <= given.keys():
        raise NoModel(f"models.{name}.prices wants both prompt and completion")
    return kind(**given) if given else None


def _embedded() -> "Model":
    path = embedded_model()
    if not path.is_file():
        raise NoModel("the embedded model is not here yet; get it with `stemma models get`")
    return _local(path, {"params": {"repeat_penalty": 1.1}}, tight=True)  # it would say one word for ever


def _local(path: Path, entry: Mapping[str, Any], *, tight: bool = False) -> "Model":
    from stemma.models.local import LocalModel

    if not path.is_file():
        raise NoModel(f"there is no model file {path}; `stemma models get` fetches the embedded one, called local")
    given = {key: entry[key] for key in ("context_window", "params") if entry.get(key)}
    return LocalModel(path, threads=os.cpu_count() or 1, tight=tight, **given)


def _scripted(path: Path) -> "Model":
    from stemma.models.scripted import ScriptedModel

    if not path.is_file():
        raise NoModel(f"there is no file of replies {path}")
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    return ScriptedModel(
        [_scripted_reply(line, f"{path}, reply {i}") for i, line in enumerate(lines, 1)], name=path.stem
    )


def _scripted_reply(line: bytes, place: str) -> str | dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=str | dict[str, Any])
    except msgspec.DecodeError as problem:
        raise NoModel(f"{place}: a text or an assistant message, as JSON, is wanted here: {problem}") from None
