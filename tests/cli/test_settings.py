"""Promises of settings: who comes before whom, and that nothing wrong is taken or passed over in silence."""

import inspect
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.conftest import trust_project
from stemma.cli.known_settings import KNOWN, Risk, UnknownSetting
from stemma.cli.places import project_config, user_cache, user_config
from stemma.cli.settings import Settings, load_settings, read_settings
from stemma.errors import StemmaError
from stemma.formats.yaml_files import BadSettings


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / ".stemma").mkdir(parents=True)
    return folder


@pytest.fixture
def say(project, tmp_path):
    """Settings of a project and a user whose files, environment and flags say this."""

    def read(in_project: str | None = None, in_home: str | None = None, environ=None, flags=None) -> Settings:
        home = tmp_path / "home"
        for file, text in (
            (project / ".stemma/config.yaml", in_project),
            (home / ".config/stemma/config.yaml", in_home),
        ):
            if text is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        if in_project is not None:
            with suppress(StemmaError):
                trust_project(project, {"HOME": str(home)})
        return read_settings(flags or {}, {"HOME": str(home), **(environ or {})}, project)

    return read


# ── who comes before whom ────────────────────────────────────────────────────────────────────────────────────────


def test_flag_before_environment_before_project_before_user_before_default(say, tmp_path):
    user = "agent: {turns: 1, tokens: 1, seconds: 1, cost: 1}"
    project = "agent:\n  turns: 2\n  tokens: 2\n  seconds: 2"
    environ = {"STEMMA_AGENT__TURNS": "3", "STEMMA_AGENT__TOKENS": "3"}
    settings = say(project, user, environ, {"agent.turns": 4, "agent.tokens": None})
    names = ("turns", "tokens", "seconds", "cost")
    assert [settings.get(f"agent.{name}") for name in names] == [4, 3, 2, 1]
    assert [settings.origin(f"agent.{name}") for name in names] == [
        "flag --turns",
        "env STEMMA_AGENT__TOKENS",
        ".stemma/config.yaml:4",
        f"{tmp_path / 'home/.config/stemma/config.yaml'}:1",
    ]
    assert (settings.get("sandbox.seconds"), settings.origin("sandbox.seconds")) == (120.0, "default")


def test_without_any_file_everything_is_the_default(say):
    settings = say()
    plain = [setting for setting in KNOWN if "*" not in setting.key]
    assert {setting.key: settings.get(setting.key) for setting in plain} == {s.key: s.default for s in plain}
    assert settings.section("models") == settings.section("mcp") == {}
    assert settings.every_key() == [setting.key for setting in plain]


def test_load_settings_reads_this_process(say, project, monkeypatch):
    say("model: of-the-project")
    monkeypatch.chdir(project)
    monkeypatch.setenv("STEMMA_STORE", "elsewhere.db")
    settings = load_settings()
    assert (settings.get("model"), settings.get("store")) == ("of-the-project", "elsewhere.db")


def test_a_section_is_a_plain_tree_with_defaults(say):
    settings = say("sandbox: {network: true}\nmodels: {fast: {base_url: http://x/v1, prices: {prompt: 1}}}")
    assert settings.section("sandbox") == {
        "kind": "auto",
        "image": None,
        "network": True,
        "seconds": 120.0,
        "memory_mb": 4096,
        "processes": 512,
        "file_mb": 1024,
        "output_chars": 30_000,
    }
    fast = settings.section("models")["fast"]
    assert fast == settings.section("models.fast")
    assert fast["prices"] == {"prompt": 1.0, "completion": None, "cached": None}
    assert settings.section("models.fast.prices") == fast["prices"]


def test_what_a_caller_does_to_a_value_stays_with_the_caller(say):
    settings = say("agent: {toolsets: [file]}")
    settings.get("agent.toolsets").append("web")
    settings.get("agent.tools").append("x.py")
    settings.section("sandbox")["network"] = True
    assert settings.get("agent.toolsets") == ["file"]
    assert say().get("agent.tools") == []
    assert settings.get("sandbox.network") is False


def test_a_name_may_hold_dots_and_slashes(say):
    settings = say('models: {"qwen2.5/7b.q4": {base_url: http://x/v1, retries: {attempts: 2}}}')
    assert settings.get("models.qwen2.5/7b.q4.base_url") == "http://x/v1"
    assert settings.get("models.qwen2.5/7b.q4.retries.attempts") == 2
    assert list(settings.section("models")) == ["qwen2.5/7b.q4"]
    assert "models.qwen2.5/7b.q4.path" in settings.every_key()


def test_null_takes_a_limit_away_and_an_empty_group_says_nothing(say):
    settings = say("agent: {turns: null}\nsandbox:\nmodels:\n")
    assert settings.get("agent.turns") is None
    assert settings.origin("agent.turns") == ".stemma/config.yaml:1"
    assert settings.get("sandbox.network") is False


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_projects_file_is_found_from_below_and_not_beyond_the_repository(tmp_path):
    outer, inner = tmp_path / "outer", tmp_path / "outer/repository/src/deep"
    inner.mkdir(parents=True)
    for folder in (outer, outer / "repository"):
        (folder / ".stemma").mkdir()
    (outer / ".stemma/config.yaml").write_text("model: a-stranger")
    assert project_config(inner) is None
    (outer / "repository/.git").mkdir()
    assert project_config(inner) is None
    (outer / "repository/.stemma/config.yaml").write_text("model: ours")
    assert project_config(inner) == outer / "repository/.stemma/config.yaml"


def test_relative_paths_in_a_file_are_meant_from_its_project(say, project, tmp_path):
    text = "store: runs/x.db\nagent: {tools: [mine.py, /abs/theirs.py]}\nmodels: {m: {path: m.gguf}}"
    settings = say(text, "agent: {prefill: hello.json}", {"STEMMA_MODEL": "./m.gguf"})
    assert settings.get("store") == str(project / "runs/x.db")
    assert settings.get("agent.tools") == [str(project / "mine.py"), "/abs/theirs.py"]
    assert settings.get("models.m.path") == str(project / "m.gguf")
    assert settings.get("agent.prefill") == str(tmp_path / "home/.config/stemma/hello.json")
    assert settings.get("model") == "./m.gguf"


def test_the_users_places_are_those_of_xdg_and_a_relative_one_is_ignored():
    assert user_config({"HOME": "/h"}) == Path("/h/.config/stemma/config.yaml")
    assert user_config({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path("/c/stemma/config.yaml")
    assert user_cache({"HOME": "/h", "XDG_CACHE_HOME": "not/absolute"}) == Path("/h/.cache/stemma")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("modle: x", ":1: there is no setting 'modle'; do you mean model?"),
        (
            "agent:\n  save_trajectory: true",
            ":2: there is no setting 'agent.save_trajectory'; do you mean agent.save_tra",
        ),
        (
            "models:\n  fast:\n    base_ulr: x",
            ":3: there is no setting 'models.fast.base_ulr'; do you mean models.*.base_url",
        ),
        ("agent: {turns: many}", ":1: agent.turns must be a whole number or null, not 'many'"),
        ("agent:\n  turns: 1.5", ":2: agent.turns must be a whole number or null, not 1.5"),
        ("agent: {turns: true}", "must be a whole number or null, not True"),
        ("agent: {save_trajectories: 1}", "must be true or false, not 1"),
        ("agent: {system: 2024-01-01}", "must be a text, not datetime.date"),
        ("agent: {toolsets: file}", "must be a list of texts, not 'file'"),
        ("agent: {system: {a: b}}", "must be a text, not a mapping"),
        ("sandbox: {network: null}", "must be true or false, not null"),
        ("sandbox: {kind: docker}", "must be one of auto, bubblewrap, none, not 'docker'"),
        ("models: {m: {tokens: tgi}}", "must be one of vllm, sglang, llama.cpp, null, not 'tgi'"),
        ("models: {m: {headers: {a: 1}}}", "must be a mapping of names to texts, not a mapping"),
        ("models: {m: {headers: sk-123}}", "must be a mapping of names to texts, not that"),
        ("models: {m: {auth_token: sk-123}}", "a secret does not belong into a file"),
        ("models: fast", ":1: settings are wanted here"),
        ("- a", ":1: settings are wanted here"),
        ("agent: {turns: 1}\n\nagent: {turns: 2}", ":3: 'agent' stands here twice"),
        ("models: {m: {params: {a: {b: 1, b: 2}}}}", "'b' stands here twice"),
        ("agent: &a {turns: 1}", ":1: anchors and aliases are not read"),
        ("models:\n  a: &x {model: m}\n  b: *x", ":2: anchors and aliases are not read"),
        ("agent:\n  <<: {turns: 1}", ":2: a key must be a plain text"),
        ("? [a]\n: 1", "a key must be a plain text"),
        ("model: !!python/object/apply:os.system [true]", ":1: could not determine a constructor"),
        ("agent: {turns: [", ":1: "),
        ("model: 'open", ":1: "),
        ("model: a\n---\nmodel: b", ":2: expected a single document in the stream"),
        ("model: \x07", "special characters are not allowed"),
        ("agent: {system: 2024-99-99}", ":1: month must be in 1..12"),
        ("agent: {turns: " + "9" * 5000 + "}", ":1: "),
        ("[" * 5000, "nested too deeply"),
        ("models: {m: {api_key: sk-123}}", ":1: models.m.api_key: a secret does not belong into a file"),
        ("web: {api_key_env: sk-123}", "must be the name of an environment variable, in capitals, not that"),
        (
            "models: {m: {api_key_env: gsk_sk-123}}",
            "must be the name of an environment variable, in capitals, not that",
        ),
        ("web:\n  api_key: sk-123", "as in `api_key_env: MY_API_KEY`"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(say, text, complaint):
    with pytest.raises(StemmaError) as refused:
        say(text)
    assert str(refused.value).startswith(".stemma/config.yaml:")
    assert complaint in str(refused.value)
    assert "sk-123" not in str(refused.value)


def test_a_file_that_is_no_text_is_refused(say, project):
    (project / ".stemma/config.yaml").write_bytes(b"model: \xff\xfe")
    with pytest.raises(BadSettings, match=r"config\.yaml: "):
        say()


def test_an_empty_file_says_nothing(say):
    assert say("", "# only words").get("model") is None


# ── environment and flags ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("model", "true", "true"),
        ("agent.system", "a: b", "a: b"),
        ("agent.save_trajectories", "true", True),
        ("agent.turns", "5", 5),
        ("agent.turns", "null", None),
        ("agent.seconds", "1.5", 1.5),
        ("agent.toolsets", "file, web", ["file", "web"]),
        ("agent.toolsets", "[file]", ["file"]),
        ("models.fast.params", "{temperature: 0.5}", {"temperature": 0.5}),
        ("models.fast.prices.prompt", "2", 2.0),
    ],
)
def test_a_variable_is_read_by_the_type_of_its_setting(say, key, text, value):
    variable = "STEMMA_" + key.upper().replace(".", "__")
    settings = say(environ={variable: text})
    assert settings.get(key) == value
    assert settings.origin(key) == f"env {variable}"


def test_an_empty_variable_says_nothing_and_others_are_not_ours(say):
    assert say("model: x", environ={"STEMMA_MODEL": "", "STEM_MODEL": "y", "MODEL": "z"}).get("model") == "x"


@pytest.mark.parametrize(
    ("variable", "text", "complaint"),
    [
        ("STEMMA_MODLE", "x", "STEMMA_MODLE would set 'modle', which is no setting; do you mean model?"),
        ("STEMMA_AGENT__TURNS", "many", "STEMMA_AGENT__TURNS: agent.turns must be a whole number or null, not 'many'"),
        ("STEMMA_AGENT__TURNS", "[", "STEMMA_AGENT__TURNS:1: "),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(say, variable, text, complaint):
    with pytest.raises(StemmaError) as refused:
        say(environ={variable: text})
    assert complaint in str(refused.value)


def test_flags_take_paths_and_tuples_and_are_checked_too(say):
    settings = say(flags={"store": Path("a.db"), "agent.tools": (Path("t.py"), "u.py"), "sandbox.kind": "none"})
    assert settings.get("store") == "a.db"
    assert settings.get("agent.tools") == ["t.py", "u.py"]
    assert settings.origin("sandbox.kind") == "flag --sandbox"
    with pytest.raises(BadSettings, match=r"--sandbox: sandbox\.kind must be one of"):
        say(flags={"sandbox.kind": "jail"})
    with pytest.raises(UnknownSetting, match=r"do you mean agent\.turns"):
        say(flags={"agent.turn": 1})


def test_unknown_keys_are_refused_by_get_and_section(say):
    with pytest.raises(UnknownSetting, match="do you mean store"):
        say().get("stoer")
    with pytest.raises(UnknownSetting, match="do you mean sandbox"):
        say().section("sandbx")


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────


def defaults_below(group):
    return {s.key.removeprefix(group): s.default for s in KNOWN if s.key.startswith(group)}


def test_defaults_are_those_of_the_parts_that_read_them():
    from stemma.agent.compaction import Compaction
    from stemma.agent.limits import Limits
    from stemma.models.retry import Retries
    from stemma.models.wire import Deadlines
    from stemma.tools import tool
    from stemma.tools.sandbox import ResourceLimits, choose_sandbox

    agent, sandbox = defaults_below("agent."), defaults_below("sandbox.")
    assert {name: agent[name] for name in Limits.__struct_fields__} == msgspec.structs.asdict(Limits())
    compaction = {name: agent[f"compaction_{name}"] for name in Compaction.__struct_fields__}
    assert compaction == msgspec.structs.asdict(Compaction())
    limits = msgspec.structs.asdict(ResourceLimits())
    assert {name: sandbox[name] for name in limits if name in sandbox} == {
        n: v for n, v in limits.items() if n in sandbox
    }
    assert sandbox["kind"] == inspect.signature(choose_sandbox).parameters["kind"].default
    assert (agent["tool_seconds"], agent["tool_output_chars"]) == (tool.SECONDS, tool.OUTPUT_CHARS)
    assert defaults_below("models.*.timeouts.") == msgspec.structs.asdict(Deadlines())
    assert defaults_below("models.*.retries.") == msgspec.structs.asdict(Retries())


def test_every_setting_says_what_a_project_could_do_with_it():
    """A new setting is put here on purpose: does a stranger's file set it without being trusted?"""
    harmless = {setting.key for setting in KNOWN if setting.risk is Risk.NONE}
    assert harmless == {
        *(f"agent.{name}" for name in ("system", "ephemeral", "save_trajectories", "turns", "tokens", "seconds")),
        *(f"agent.compaction_{name}" for name in ("threshold", "keep_last")),
        *(f"agent.tool_{name}" for name in ("seconds", "output_chars")),
        *(f"models.*.{name}" for name in ("context_window", "protocol", "reasoning_field", "tokens")),
        *(f"models.*.timeouts.{name}" for name in ("connect", "first_byte", "between_bytes", "total")),
        *(f"models.*.retries.{name}" for name in ("attempts", "first", "longest")),
    }


def test_every_setting_has_help_and_its_default_is_of_its_type():
    for setting in KNOWN:
        assert setting.help.endswith((".", "…"))
        assert msgspec.convert(setting.default, setting.type) == setting.default


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from([setting.key.replace("*", "name") for setting in KNOWN]) | st.text(max_size=10)


@given(key=KEYS, value=VALUES)
def test_any_file_is_read_or_refused_with_its_place(tmp_path_factory, key, value):
    folder = tmp_path_factory.getbasetemp() / "any"
    (folder / ".stemma").mkdir(parents=True, exist_ok=True)
    tree = value
    for part in reversed(key.split(".")):
        tree = {part: tree}
    (folder / ".stemma/config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    try:
        trust_project(folder, {"HOME": str(folder)})
        settings = read_settings({}, {"HOME": str(folder)}, folder)
    except (BadSettings, UnknownSetting) as problem:
        told = str(problem)
    else:
        told = settings.origin(key) if value not in ({}, None) else ".stemma/config.yaml:"
    assert told.startswith(".stemma/config.yaml:")
