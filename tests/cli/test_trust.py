"""A project's file that could do harm counts only after its user has trusted exactly this content."""

import json
import os
import stat

import pytest

from cli.conftest import trust_project
from stemma.cli.settings import read_settings
from stemma.cli.trust import Untrusted

RISKY = {
    "mcp: {x: {command: ./evil}}": "mcp.x.command",
    "mcp: {x: {args: [a]}}": "mcp.x.args",
    "mcp: {x: {env: {A: b}}}": "mcp.x.env",
    "mcp: {x: {url: 'http://evil'}}": "mcp.x.url",
    "agent: {tools: [evil.py]}": "agent.tools",
    "agent: {prefill: /etc/passwd}": "agent.prefill",
    "agent: {toolsets: [web]}": "agent.toolsets",
    "agent: {toolsets: [file, tool_of_a_package]}": "agent.toolsets",
    "agent: {cost: 1000}": "agent.cost",
    "models: {m: {base_url: 'http://evil/v1'}}": "models.m.base_url",
    "models: {m: {model: openai/x}}": "models.m.model",
    "models: {m: {api_key_env: OTHER_KEY}}": "models.m.api_key_env",
    "models: {m: {headers: {Host: evil}}}": "models.m.headers",
    "models: {m: {extra_body: {tools: []}}}": "models.m.extra_body",
    "models: {m: {params: {tools: [{server_url: evil}]}}}": "models.m.params",
    "models: {m: {path: evil.gguf}}": "models.m.path",
    "models: {m: {prices: {prompt: 0}}}": "models.m.prices.prompt",
    "web: {search_url: 'http://evil'}": "web.search_url",
    "web: {provider: brave}": "web.provider",
    "web: {api_key_env: OPENAI_API_KEY}": "web.api_key_env",
    "sandbox: {kind: none}": "sandbox.kind",
    "sandbox: {image: evil}": "sandbox.image",
    "sandbox: {network: true}": "sandbox.network",
    "sandbox: {memory_mb: 1000000}": "sandbox.memory_mb",
    "model: evil.gguf": "model",
    "model: 'scripted:evil.jsonl'": "model",
    "store: /elsewhere/x.db": "store",
    "store: ../x.db": "store",
    "store: .git/x.db": "store",
    "store: link/x.db": "store",
}
HARMLESS = [
    "model: openai/gpt-5",
    "model: fast",
    "store: runs/x.db",
    "agent: {system: Be brief., turns: 5, toolsets: [file, terminal, delegate_task], save_trajectories: true}",
    "sandbox: {kind: bubblewrap, network: false}",
    "models: {m: {params: {temperature: 0.5}, context_window: 100, retries: {attempts: 1}}}",
    "",
]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / ".stemma").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    return folder


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path / "home")}


def write(project, text):
    (project / ".stemma/config.yaml").write_text(text)


@pytest.mark.parametrize(("text", "key"), RISKY.items())
def test_a_file_that_could_do_harm_is_refused_with_the_setting_and_the_remedy(project, environ, text, key):
    write(project, text)
    with pytest.raises(Untrusted, match=r"is not trusted.*run `stemma config trust`") as refused:
        read_settings({}, environ, project)
    assert f"{key} in line 1" in str(refused.value)
    trust_project(project, environ)
    assert read_settings({}, environ, project).origin(key) == ".stemma/config.yaml:1"


@pytest.mark.parametrize("text", HARMLESS)
def test_a_file_without_harm_needs_no_trust(project, environ, text):
    write(project, text)
    read_settings({}, environ, project)


@pytest.mark.parametrize("text", RISKY)
def test_the_users_own_file_and_environment_need_none(project, environ, tmp_path, text):
    own = tmp_path / "home/.config/stemma/config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(text)
    read_settings({"sandbox.kind": "none"}, {**environ, "STEMMA_SANDBOX__NETWORK": "true"}, project)


def test_a_changed_file_must_be_trusted_again_and_the_one_before_it_is_not_trusted_any_more(project, environ):
    write(project, "mcp: {x: {command: first}}")
    trust_project(project, environ)
    write(project, "mcp: {x: {command: second}}")
    with pytest.raises(Untrusted, match="has changed since you trusted it"):
        read_settings({}, environ, project)
    trust_project(project, environ)
    assert read_settings({}, environ, project).get("mcp.x.command") == "second"
    write(project, "mcp: {x: {command: first}}")
    with pytest.raises(Untrusted):
        read_settings({}, environ, project)


@pytest.mark.parametrize(
    "text",
    ["agent: {tools: [code.py]}", "mcp: {x: {command: ./code.py}}", "mcp: {x: {command: python, args: [code.py]}}"],
)
def test_code_in_the_project_that_it_names_is_trusted_with_it(project, environ, text):
    write(project, text)
    (project / "code.py").write_text("first")
    trust_project(project, environ)
    read_settings({}, environ, project)
    (project / "code.py").write_text("second")
    with pytest.raises(Untrusted, match="or a file that it names has"):
        read_settings({}, environ, project)


def test_the_same_content_elsewhere_is_not_trusted(project, environ, tmp_path):
    write(project, "mcp: {x: {command: first}}")
    trust_project(project, environ)
    other = tmp_path / "other"
    (other / ".stemma").mkdir(parents=True)
    write(other, "mcp: {x: {command: first}}")
    with pytest.raises(Untrusted):
        read_settings({}, environ, other)


def test_what_is_trusted_is_kept_for_the_user_alone(project, environ, tmp_path):
    write(project, "mcp: {x: {command: first}}")
    trust_project(project, environ)
    (record,) = (tmp_path / "home/.local/state/stemma/trusted").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700


def test_the_commands_trust_show_list_and_revoke(run, tmp_path):
    (tmp_path / ".stemma").mkdir()
    file = tmp_path / ".stemma/config.yaml"
    file.write_text("agent: {turns: 3}\nmcp:\n  x: {command: touch, args: [started]}\n")
    refused = run("chat", "-p", "hi", "-m", "openai/x")
    assert refused.code == 1
    assert refused.err.startswith(f"stemma: {file} is not trusted: mcp.x.command in line 3 starts programs")
    assert run("log").code == 1
    assert "not trusted" in run("config", "path").out
    assert json.loads(run("config", "path", "--json").out)["project"]["trusted"] is False
    assert "counts only after `stemma config trust`" in run("config", "show").out
    trusted = run("config", "trust")
    assert trusted.code == 0
    assert "mcp.x.command  line 3: starts programs or loads code" in trusted.out
    assert "(trusted)" in run("config", "path").out
    assert run("config", "trust", "--list").out.splitlines() == [os.path.realpath(file)]
    assert "not trusted" not in run("config", "show").out
    assert run("config", "trust", "--revoke").code == 0
    assert run("config", "trust", "--list").out == ""
    assert run("config", "trust", "--revoke").code == 1
    assert not (tmp_path / "started").exists()


def test_without_a_file_there_is_nothing_to_trust_and_a_harmless_one_needs_none(run, tmp_path):
    assert "there is no .stemma/config.yaml" in run("config", "trust").err
    (tmp_path / ".stemma").mkdir()
    (tmp_path / ".stemma/config.yaml").write_text("agent: {turns: 3}")
    assert "needs no trust" in run("config", "trust").out
    assert run("config", "trust", "--list").out == ""
