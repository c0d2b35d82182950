"""Every key of the settings has an effect: each is changed alone, and something that can be seen changes with it."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from cli.conftest import run  # noqa: F401 - a fixture
from compress.endpoint import endpoint
from compress.rows import Words, agentic, failing, model_summarizer, turn, words
from compress.tokenizer_files import save
from stemma.compress.counters import open_counter
from stemma.compress.errors import BadSettings, BadTokenizer
from stemma.compress.files import Source, compress_files
from stemma.compress.run import Run
from stemma.compress.sampling import Sample
from stemma.compress.settings import Settings, Summarization, settings_of
from stemma.errors import NotFound

SHIPPED = Path(__file__).parents[2] / "configs" / "trajectory_compression.yaml"
BASE = {"compression": {"target_max_tokens": 700, "summary_target_tokens": 30}}
LATE_TOOL = ["system", "human", "gpt", *["human", "gpt"] * 3, "gpt", "tool", *["human", "gpt"] * 3]
ROWS = [
    {"conversations": agentic()},
    {"conversations": [turn(role, 60) for role in LATE_TOOL]},
    {"conversations": agentic(3)},
    {"conversations": [turn("human", 900)]},
]


def merged(key, value):
    section, name = key.split(".")
    return {**BASE, section: {**BASE.get(section, {}), name: value}}


class Busy(Words):
    """How many batches are counted at once."""

    now = most = 0

    async def count(self, texts):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        return await super().count(texts)


def seen(tmp_path, configuration, rows=ROWS):
    """Everything a run leaves behind and asks for."""
    source = tmp_path / "in" / "data"
    if not source.exists():
        source.mkdir(parents=True)
        (source / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = settings_of(configuration)
    now = most = 0

    async def answer(request):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.03)
        now -= 1
        return words(9)

    summarizer, model = model_summarizer(answer)
    counter = Busy()

    async def go():
        await compress_files(Source(source, Sample()), None, Run(how, counter, summarizer), {})

    asyncio.run(go())
    made = {}
    for path in sorted(source.parent.rglob("*")):
        if path.is_file() and path.parent != source:
            made[str(path.relative_to(source.parent))] = path.read_bytes()
            path.unlink()
    asked = sorted(str(request.params.get("max_tokens")) for request in model.requests)
    return made, asked, most, counter.most


CHANGES = {
    "compression.target_max_tokens": 600,
    "compression.summary_target_tokens": 20,
    "protected_turns.first_system": False,
    "protected_turns.first_human": False,
    "protected_turns.first_gpt": False,
    "protected_turns.first_tool": False,
    "protected_turns.last_n_turns": 18,
    "output.add_summary_notice": False,
    "output.summary_notice_text": " (cut)",
    "output.output_suffix": "-short",
    "processing.skip_under_target": False,
    "processing.save_over_limit": False,
    "processing.per_trajectory_timeout": 0.001,
    "metrics.enabled": False,
    "metrics.per_trajectory": False,
    "metrics.output_file": "told.json",
}


@pytest.mark.parametrize("key", CHANGES)
def test_a_key_changes_what_a_run_leaves_behind(key, tmp_path):
    before, after = seen(tmp_path, BASE)[0], seen(tmp_path, merged(key, CHANGES[key]))[0]
    assert before != after


def test_num_workers_is_how_many_batches_are_counted_at_once(tmp_path):
    rows = [{"conversations": agentic(3)}] * 500
    assert seen(tmp_path, merged("processing.num_workers", 1), rows)[3] == 1
    assert seen(tmp_path, merged("processing.num_workers", 3), rows)[3] == 3


def test_max_concurrent_requests_is_how_many_summaries_are_asked_for_at_once(tmp_path):
    rows = [{"conversations": agentic()}] * 10
    assert seen(tmp_path, merged("processing.max_concurrent_requests", 2), rows)[2] == 2
    assert seen(tmp_path, merged("processing.max_concurrent_requests", 7), rows)[2] == 7


def test_the_tokenizer_is_the_one_named(tmp_path):
    how = settings_of({"tokenizer": {"name": str(save(tmp_path))}})

    async def count(settings):
        tokenizer = settings.tokenizer
        counter = await open_counter(tokenizer.name, hub=tmp_path, trust_remote_code=tokenizer.trust_remote_code)
        return await counter.count(["some words"])

    assert asyncio.run(count(how)) != asyncio.run(count(settings_of({"tokenizer": {"name": "estimate"}})))
    with pytest.raises(NotFound, match="moonshotai/Kimi-K2-Thinking"):
        asyncio.run(count(Settings()))
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {}}')
    refusing = settings_of({"tokenizer": {"name": str(tmp_path), "trust_remote_code": False}})
    with pytest.raises(BadTokenizer):
        asyncio.run(count(refusing))


def test_the_keys_of_summarization_reach_the_endpoint(run, tmp_path, monkeypatch):  # noqa: F811
    (tmp_path / "a.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    monkeypatch.setenv("MY_KEY", "sesame")
    with endpoint() as served:
        section = {"model": "mine", "base_url": f"{served.url}/v1", "api_key_env": "MY_KEY", "temperature": 0.7}
        configuration = {**BASE, "tokenizer": {"name": "estimate"}, "summarization": section}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(configuration))
        told = run("compress", "a.jsonl", "--config", "c.yaml")
        assert told.code == 0, told.err
    assert served.keys == ["Bearer sesame"]
    assert (served.bodies[0]["model"], served.bodies[0]["temperature"]) == ("mine", 0.7)


@pytest.mark.parametrize("attempts", [1, 4])
def test_max_retries_and_retry_delay_are_how_often_and_how_patiently_it_is_asked(attempts):
    from stemma.cli.compress_setup import _summarizer
    from stemma.models.scripted import ScriptedModel

    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    model = ScriptedModel(failing()._model._function)
    how = Settings(summarization=Summarization(max_retries=attempts, retry_delay=8))
    summarizer = _summarizer(model, how)
    summarizer._sleep, summarizer._chance = sleep, lambda: 1.0
    with pytest.raises(Exception, match="busy"):
        asyncio.run(summarizer.summarise([], 10))
    assert len(model.requests) == attempts
    assert waits == [8.0 * 2**n for n in range(attempts - 1)]


def test_every_key_is_tried_here_and_stands_in_the_shipped_file_with_its_default():
    shipped = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    settings = settings_of(shipped)
    defaults = Settings(summarization=Summarization())
    assert settings == defaults
    keys = {f"{section}.{name}" for section, names in shipped.items() for name in names}
    elsewhere = {"tokenizer.name", "tokenizer.trust_remote_code", "processing.num_workers"}
    elsewhere |= {"processing.max_concurrent_requests"}
    elsewhere |= {f"summarization.{name}" for name in Summarization.__struct_fields__}
    assert keys == set(CHANGES) | elsewhere
    fields = {name: type(getattr(defaults, name)).__struct_fields__ for name in Settings.__struct_fields__}
    assert keys == {f"{section}.{name}" for section, names in fields.items() for name in names}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"compresion": {}}, "compresion"),
        ({"compression": {"target": 1}}, "target"),
        ({"compression": {"target_max_tokens": 0}}, "target_max_tokens"),
        ({"compression": {"target_max_tokens": "many"}}, "target_max_tokens"),
        ({"protected_turns": {"last_n_turns": -1}}, "last_n_turns"),
        ({"metrics": {"output_file": "../x.json"}}, "output_file"),
        ([1], "object"),
    ],
)
def test_what_cannot_be_used_is_named(wrong, named):
    with pytest.raises(BadSettings, match=named):
        settings_of(wrong, "c.yaml")


def test_an_empty_section_has_its_defaults():
    assert settings_of({"compression": None, "summarization": None}).summarization == Summarization()
    assert settings_of(None) == Settings()
