"""Promises of choosing a model: what `-m` and `--base-url` mean, and what is said where they mean nothing."""

import asyncio
import json

import pytest

from cli.conftest import trust_project
from completions import completion
from faultserver import Exchange, FaultServer, in_loop
from stemma.cli.choosing import PROVIDERS, NoModel, choose_model, credentials, embedded_model
from stemma.cli.settings import read_settings
from stemma.models.endpoint import Endpoint
from stemma.models.errors import ModelError
from stemma.models.hermes_model import HermesModel
from stemma.models.local import LocalModel
from stemma.models.protocol import Request

HELLO = Request(messages=[{"role": "user", "content": "Hello"}])


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Settings of a project whose config file says this; no provider's key is set."""
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.api_key_env, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / ".stemma").mkdir()

    def read(config=None):
        (tmp_path / ".stemma/config.yaml").write_text(json.dumps(config or {}))  # JSON is YAML
        trust_project(tmp_path, {"HOME": str(tmp_path)})
        return read_settings({}, {"HOME": str(tmp_path)}, tmp_path)

    return read


async def one_request(settings, server, **choice):
    model = choose_model(settings, **choice)
    try:
        reply = await model.reply(HELLO)
    finally:
        await model.close()
    return reply, server.requests[-1]


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────────────────────


@in_loop
async def test_a_named_model_is_asked_as_its_entry_says(configured, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sesame")
    async with FaultServer() as server:
        entry = {
            "base_url": server.base_url,
            "model": "served/as-this",
            "api_key_env": "MY_KEY",
            "context_window": 1234,
            "params": {"temperature": 0.25},
            "headers": {"X-Team": "red"},
            "extra_body": {"top_k": 5},
            "tokens": "vllm",
            "prices": {"prompt": 2.0, "completion": 4.0},
        }
        settings = configured({"models": {"fast": entry}, "model": "fast"})
        reply, asked = await one_request(settings, server)
    assert choose_model(settings).context_window == 1234
    assert asked.body["model"] == "served/as-this"
    assert (asked.body["temperature"], asked.body["top_k"], asked.body["return_token_ids"]) == (0.25, 5, True)
    assert asked.headers["authorization"] == "Bearer sesame"
    assert asked.headers["x-team"] == "red"
    assert reply.call.cost == pytest.approx((7 * 2 + 5 * 4) / 1e6)


@in_loop
async def test_timeouts_and_retries_of_an_entry_count(configured):
    async with FaultServer(always="error_500") as server:
        entry = {"base_url": server.base_url, "retries": {"attempts": 3, "first": 0.01}}
        with pytest.raises(ModelError):
            await one_request(configured({"models": {"flaky": entry}}), server, name="flaky")
        assert len(server.requests) == 3
        entry = {"base_url": server.base_url, "retries": {"attempts": 1}, "timeouts": {"total": 0.2}}
        server.always = "never_answers"
        begun = asyncio.get_running_loop().time()
        with pytest.raises(ModelError):
            await one_request(configured({"models": {"slow": entry}}), server, name="slow")
        assert asyncio.get_running_loop().time() - begun < 2


@in_loop
async def test_earlier_reasoning_goes_back_in_the_field_the_entry_names(configured):
    async with FaultServer() as server:
        settings = configured({"models": {"r": {"base_url": server.base_url, "reasoning_field": "reasoning_content"}}})
        model = choose_model(settings, "r")
        said = [{"role": "assistant", "content": "Hi.", "reasoning": "Greet."}, *HELLO.messages]
        await model.reply(Request(messages=said))
        await model.close()
    assert server.requests[0].body["messages"][0]["reasoning_content"] == "Greet."


@in_loop
async def test_the_hermes_protocol_is_a_matter_of_the_entry(configured):
    async def calls(e: Exchange) -> None:
        await e.completion(completion('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'))

    async with FaultServer(always=calls) as server:
        settings = configured({"models": {"old": {"base_url": server.base_url, "protocol": "hermes"}}})
        assert isinstance(choose_model(settings, "old"), HermesModel)
        reply, _ = await one_request(settings, server, name="old")
    assert reply.message["tool_calls"][0]["function"]["name"] == "f"


@in_loop
async def test_an_entry_without_a_model_is_served_under_its_own_name(configured):
    async with FaultServer() as server:
        _, asked = await one_request(configured({"models": {"m": {"base_url": server.base_url}}}), server, name="m")
    assert asked.body["model"] == "m"


@in_loop
async def test_any_model_at_a_base_url_needs_no_config_and_no_key(configured):
    async with FaultServer() as server:
        _, asked = await one_request(configured(), server, name="anything/at-all", base_url=server.base_url)
    assert asked.body["model"] == "anything/at-all"
    assert "authorization" not in asked.headers


@in_loop
async def test_a_base_url_moves_a_named_model(configured):
    async with FaultServer() as server:
        settings = configured({"models": {"fast": {"base_url": "http://127.0.0.1:9/v1", "model": "inner"}}})
        _, asked = await one_request(settings, server, name="fast", base_url=server.base_url)
    assert asked.body["model"] == "inner"


# ── providers and keys ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_is_known_by_its_name_and_wants_its_key(configured, monkeypatch, name):
    provider = PROVIDERS[name]
    with pytest.raises(NoModel, match=f"environment variable {provider.api_key_env}, which is not set"):
        choose_model(configured(), f"{name}/some/model")
    monkeypatch.setenv(provider.api_key_env, "k")
    model = choose_model(configured(), f"{name}/some/model")
    assert (model.name, repr(model)) == (
        "some/model",
        f"OpenAIModel('some/model', {str(Endpoint(provider.base_url))!r})",
    )


def test_an_entry_may_stand_for_a_providers_model(configured, monkeypatch):
    monkeypatch.setenv("GROQ_API_KEY", "k")
    model = choose_model(configured({"models": {"quick": {"model": "groq/llama", "context_window": 9}}}), "quick")
    assert (model.name, model.context_window) == ("llama", 9)
    assert "api.groq.com" in repr(model)


def test_the_address_of_a_known_provider_wants_its_key_but_a_name_that_begins_like_it_never_gets_it(
    configured, monkeypatch
):
    with pytest.raises(NoModel, match="OPENAI_API_KEY"):
        choose_model(configured(), "gpt", base_url="https://api.openai.com/v1/")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    stranger = choose_model(configured(), "gpt", base_url="https://api.openai.com/v1.example.org/v1")
    assert "Authorization" not in stranger._endpoint.headers


def test_a_key_that_an_entry_names_must_be_there(configured):
    settings = configured({"models": {"m": {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "NOT_THERE"}}})
    with pytest.raises(NoModel, match="'m' is to be in the environment variable NOT_THERE"):
        choose_model(settings, "m")


def test_credentials_are_all_secrets_of_ours_and_nothing_else(configured):
    models = {"m": {"api_key_env": "MINE", "headers": {"X-Api-Key": "e", "X-Team": "red"}}}
    mcp = {"github": {"command": "x", "env": {"GITHUB_TOKEN": "f", "LANG": "C"}}}
    settings = configured({"models": models, "mcp": mcp, "web": {"api_key_env": "SEARCH"}})
    environ = {"MINE": "a", "SEARCH": "b", "OPENAI_API_KEY": "c", "GROQ_API_KEY": "", "OTHER": "d"}
    assert credentials(settings, environ) == ["a", "b", "c", "e", "f"]


# ── local and scripted ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_embedded_model_that_is_not_there_is_asked_for_by_command(configured):
    with pytest.raises(NoModel, match="`stemma models get`"):
        choose_model(configured(), "local")


def test_the_embedded_model_any_gguf_file_and_an_entry_with_a_path_are_run_here(configured, tmp_path):
    files = [embedded_model(), tmp_path / "own.gguf"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"GGUF")
    settings = configured({"models": {"mine": {"path": "own.gguf", "context_window": 512}}})
    embedded, by_path, by_name = (choose_model(settings, name) for name in ("local", str(files[1]), "mine"))
    assert all(isinstance(model, LocalModel) for model in (embedded, by_path, by_name))
    assert (by_path.name, by_name.context_window) == ("own", 512)


def test_a_script_answers_line_by_line(configured, tmp_path):
    file = tmp_path / "talk.jsonl"
    file.write_text('"Hi."\n\n{"content": "Bye.", "reasoning": "Enough."}\n')
    model = choose_model(configured(), f"scripted:{file}")
    said = [asyncio.run(model.reply(HELLO)).message for _ in range(2)]
    assert said == [
        {"role": "assistant", "content": "Hi."},
        {"role": "assistant", "content": "Bye.", "reasoning": "Enough."},
    ]
    assert model.name == "talk"


@pytest.mark.parametrize("line", ["[1]", "{", "3", "\udcff"])
def test_a_script_with_a_wrong_line_is_refused_with_its_number(configured, tmp_path, line):
    file = tmp_path / "talk.jsonl"
    file.write_bytes(b'"Hi."\n' + line.encode("utf-8", "surrogateescape"))
    with pytest.raises(NoModel, match=r"talk\.jsonl, reply 2: a text or an assistant message"):
        choose_model(configured(), f"scripted:{file}")


# ── nothing to choose ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("config", "name", "complaint"),
    [
        ({}, None, "no model was named; give -m NAME of a model in the config, -m PROVIDER/MODEL"),
        ({}, "opanai/gpt", "there is no model 'opanai/gpt'; do you mean openai?"),
        ({"models": {"fast": {"model": "groq/x"}}}, "fats", "do you mean fast?"),
        ({}, "openai/", "there is no model 'openai/'"),
        ({}, "nothing.gguf", "there is no model file nothing.gguf"),
        ({}, "scripted:nothing.jsonl", "there is no file of replies nothing.jsonl"),
        ({"models": {"m": {"params": {}}}}, "m", "models.m does not say where it is"),
        ({"models": {"m": {"model": "gpt"}}}, "m", "models.m does not say where it is"),
        ({"models": {"m": {"path": "x", "base_url": "http://x/v1"}}}, "m", "both a path and a base_url"),
        ({"models": {"m": {"base_url": "http://x/v1", "prices": {"prompt": 1}}}}, "m", "both prompt and completion"),
    ],
)
def test_what_names_no_model_is_refused_with_what_to_do(configured, config, name, complaint):
    with pytest.raises(NoModel) as refused:
        choose_model(configured(config), name)
    assert complaint in str(refused.value)
