"""Promises of `stemma config`."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from cli.conftest import trust_project
from stemma.cli.example_config import example
from stemma.cli.known_settings import KNOWN
from stemma.cli.settings import read_settings
from stemma.errors import StemmaError

SECRETS = {
    "models": {
        "fast": {
            "base_url": "https://me:hunter2@example.org/v1?key=hunter2",
            "api_key_env": "FAST_KEY",
            "headers": {"X-Api-Key": "hunter2", "X-Other": "hunter2"},
            "extra_body": {"auth": {"api_key": "hunter2"}, "max_tokens": 5},
        }
    },
    "mcp": {
        "files": {"command": "serve", "args": ["--token", "hunter2", "--secret=hunter2"], "env": {"T": "hunter2"}},
        "far": {"url": "https://example.org/mcp?apiKey=hunter2"},
    },
    "web": {"search_url": "https://example.org/search?token=hunter2"},
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for variable in ("CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / "home"))
    return tmp_path


def configure(folder, tree):
    (folder / ".stemma").mkdir()
    (folder / ".stemma/config.yaml").write_text(yaml.safe_dump(tree))
    with suppress(StemmaError):
        trust_project(folder)


def test_show_prints_every_setting_and_with_origin_who_said_it(home, run, monkeypatch):
    configure(home, {"model": "fast", "agent": {"turns": 9}})
    monkeypatch.setenv("STEMMA_SANDBOX__NETWORK", "true")
    told = run("config", "show", "--origin")
    assert told.code == 0
    lines = {line.split()[0]: line for line in told.out.splitlines()}
    assert list(lines) == [setting.key for setting in KNOWN if "*" not in setting.key]
    assert lines["agent.turns"].split(maxsplit=1)[1] == "9  (.stemma/config.yaml:2)"
    assert lines["model"].endswith('"fast"  (.stemma/config.yaml:3)')
    assert lines["sandbox.network"].endswith("true  (env STEMMA_SANDBOX__NETWORK)")
    assert lines["store"].endswith('"stemma.db"  (default)')
    assert "default" not in run("config", "show").out


def test_show_as_json(home, run):
    configure(home, {"models": {"fast": {"model": "groq/x"}}})
    plain, with_origin = (json.loads(run("config", "show", "--json", *more).out) for more in ([], ["--origin"]))
    assert plain["models.fast.model"] == "groq/x"
    assert with_origin["models.fast.model"] == {"value": "groq/x", "origin": ".stemma/config.yaml:3"}
    assert with_origin["models.fast.retries.attempts"] == {"value": 5, "origin": "default"}


@pytest.mark.parametrize("flags", [[], ["--origin"], ["--json"]])
def test_no_secret_is_shown(home, run, flags):
    configure(home, SECRETS)
    told = run("config", "show", *flags)
    assert told.code == 0
    assert "hunter2" not in told.out
    assert "FAST_KEY" in told.out
    assert "X-Api-Key" in told.out
    assert "max_tokens" in told.out
    assert "hunter2" not in run("models").out + run("models", "list", "--json").out


def test_a_wrong_config_is_one_line_on_standard_error(home, run):
    configure(home, {"agent": {"turn": 9}})
    told = run("config", "show")
    assert (told.code, told.out) == (1, "")
    assert told.err == ("stemma: .stemma/config.yaml:2: there is no setting 'agent.turn'; do you mean agent.turns?\n")


def test_path_names_both_files_and_whether_they_are_there(home, run):
    told = run("config", "path").out.splitlines()
    assert told == [
        f"project  {home / '.stemma/config.yaml'}  (not there)",
        f"user     {home / 'home/stemma/config.yaml'}  (not there)",
    ]
    configure(home, {})
    assert json.loads(run("config", "path", "--json").out)["project"] == {
        "path": str(home / ".stemma/config.yaml"),
        "exists": True,
        "trusted": True,
    }


@pytest.mark.parametrize("user", [False, True])
def test_init_writes_a_file_that_says_nothing_yet_and_never_writes_over_one(home, run, user):
    file = home / ("home/stemma/config.yaml" if user else ".stemma/config.yaml")
    flags = ["--user"] if user else []
    assert run("config", "init", *flags).code == 0
    assert run("config", "show").code == 0
    assert yaml.safe_load(file.read_text()) is None
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("model: mine")
    again = run("config", "init", *flags)
    assert again.code == 1
    assert "there already" in again.err
    assert file.read_text() == "model: mine"


def test_the_example_without_its_comment_signs_is_every_setting_at_its_default(tmp_path):
    text = "\n".join(line.removeprefix("#") for line in example().splitlines()[1:])
    (tmp_path / ".stemma").mkdir()
    (tmp_path / ".stemma/config.yaml").write_text(text)
    trust_project(tmp_path, {"HOME": str(tmp_path)})
    settings = read_settings({}, {"HOME": str(tmp_path)}, tmp_path)
    for setting in KNOWN:
        key = setting.key.replace("*", "example")
        assert settings.origin(key) != "default"
        assert settings.get(key) == (str(tmp_path / setting.default) if key == "store" else setting.default)


def test_the_document_has_every_setting_with_its_default_and_its_example_is_read(tmp_path):
    document = (Path(__file__).resolve().parents[2] / "docs/config.md").read_text()
    for setting in KNOWN:
        key, default = setting.key.replace("*", "NAME"), json.dumps(setting.default)
        assert f"| `{key}` | `{default}` | {setting.help} |" in document
    (tmp_path / ".stemma").mkdir()
    (tmp_path / ".stemma/config.yaml").write_text(document.split("```yaml\n")[1].split("```")[0])
    trust_project(tmp_path, {"HOME": str(tmp_path)})
    settings = read_settings({}, {"HOME": str(tmp_path)}, tmp_path)
    assert list(settings.section("models")) == ["fast", "ours", "small", "talker"]
