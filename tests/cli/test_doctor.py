"""Promises of `stemma doctor`, on real endpoints and this machine."""

import asyncio
import json
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

import needs
from cli.conftest import trust_project
from completions import completion
from faultserver import Exchange, FaultServer
from stemma import open_store
from stemma.cli.surroundings import EXTRAS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for variable in ("CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / "home"))
    return tmp_path


@contextmanager
def serving(answer) -> Iterator[str]:
    """The address of an endpoint that answers while the command runs, in a thread of its own."""
    ready, done, address = threading.Event(), threading.Event(), []

    async def serve() -> None:
        async with FaultServer(always=answer) as server:
            address.append(server.base_url)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(10)
    try:
        yield address[0]
    finally:
        done.set()
        thread.join()


async def talks(e: Exchange) -> None:
    await e.json(completion("blue"))


def found(told, where):
    return {finding["name"]: finding["answer"] for finding in where(json.loads(told.out))}


def test_an_endpoint_that_talks_is_fine_and_what_it_can_do_is_told(run):
    with serving(talks) as address:
        told = run("doctor", "-m", "m", "--base-url", address, "--json")
        text = run("doctor", "-m", "m", "--base-url", address)
    assert (told.code, text.code) == (0, 0)
    can = found(told, lambda told: told["model"]["findings"])
    assert (can["chat"], can["streaming"], can["tools"], can["token ids"]) == ("yes", "no", "unknown", "no")
    assert json.loads(told.out)["model"]["models"] == ["m"]
    for name, answer in can.items():
        assert any(line.split()[: len(name.split()) + 1] == [*name.split(), answer] for line in text.out.splitlines())


@pytest.mark.parametrize("fault", ["forbidden", "unauthorised_echoing_key"])
def test_an_endpoint_that_cannot_be_used_is_a_failure(run, home, monkeypatch, fault):
    monkeypatch.setenv("DOCTOR_KEY", "sk-hunter2-hunter2")
    (home / ".stemma").mkdir()
    with serving(fault) as address:
        models = {"bad": {"base_url": address, "api_key_env": "DOCTOR_KEY", "retries": {"attempts": 1}}}
        (home / ".stemma/config.yaml").write_text(yaml.safe_dump({"models": models, "model": "bad"}))
        trust_project(home)
        told = run("doctor")
    assert told.code == 1
    assert "chat" in told.out
    assert "hunter2" not in told.out + told.err


def test_an_endpoint_that_is_not_there_is_a_failure(run, home):
    (home / ".stemma").mkdir()
    models = {"gone": {"base_url": "http://127.0.0.1:9/v1", "retries": {"attempts": 1}}}
    (home / ".stemma/config.yaml").write_text(yaml.safe_dump({"models": models}))
    trust_project(home)
    told = run("doctor", "-m", "gone")
    assert told.code == 1
    assert "cannot be reached" in told.out


def test_a_hermes_model_is_examined_behind_its_protocol(run, home):
    (home / ".stemma").mkdir()
    with serving(talks) as address:
        models = {"old": {"base_url": address, "protocol": "hermes"}}
        (home / ".stemma/config.yaml").write_text(yaml.safe_dump({"models": models}))
        trust_project(home)
        told = run("doctor", "-m", "old", "--json")
    assert told.code == 0
    assert "tools" in found(told, lambda told: told["model"]["findings"])


def test_a_model_that_is_no_endpoint_is_asked_one_question(run, home):
    (home / "talk.jsonl").write_text('"Blue."\n')
    told = run("doctor", "-m", "scripted:talk.jsonl", "--json")
    assert told.code == 0
    assert found(told, lambda told: told["model"]["findings"]) == {"chat": "yes", "token ids": "no", "logprobs": "no"}
    (home / "talk.jsonl").write_text("")
    assert run("doctor", "-m", "scripted:talk.jsonl").code == 1


def test_without_a_model_only_this_machine_is_looked_at(run):
    told = run("doctor", "--json")
    assert told.code == 0
    assert json.loads(told.out)["model"] is None
    here = found(told, lambda told: told["here"])
    assert here["extra mcp"] in ("yes", "no")
    assert here["embedded model"] == "no"
    assert "no model was named" in run("doctor").out


def test_a_model_that_cannot_be_chosen_is_one_line_on_standard_error(run):
    told = run("doctor", "-m", "opanai/gpt")
    assert (told.code, told.out) == (1, "")
    assert "do you mean openai?" in told.err


@needs.command("bwrap", "bubblewrap")
def test_the_sandbox_is_really_tried(run):
    assert found(run("doctor", "--json"), lambda told: told["here"])["sandbox"] == "yes"


def test_a_machine_without_a_fence_says_what_to_do(run, home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))
    told = run("doctor")
    assert told.code == 0
    assert "apt install bubblewrap" in told.out


def test_the_store_is_looked_at(run, home, monkeypatch):
    def store():
        return next(line for line in run("doctor").out.splitlines() if line.split()[0] == "store")

    assert "yes      stemma.db, not there yet" in store()
    with open_store(home / "stemma.db"):
        pass
    assert "stemma.db: 0 graphs" in store()
    (home / "stemma.db").write_bytes(b"this is no store" * 100)
    assert store().split()[1] == "no"


def test_the_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: needed for name, needed in project["optional-dependencies"].items() if name != "test"}
    assert {name: tuple(one.split(">")[0] for one in needed) for name, needed in extras.items()} == EXTRAS
