"""TRL's own preparation of our rows: the loss falls on the sampled messages, each once, and on nothing else."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from stemma.formats.export import export
from stemma.formats.training import rows_of_graph
from stemma.formats.trl import TRL, TRL_TURNS, trl_rows
from trainers.trl.conftest import model, sft_trainer, templates, tokenizer, trained_texts
from trainers.trl.samples import GRAPHS, edited, interrupted, plain_chat, rows, tool_use

TRAINED = ["plain answer", "first query", "one more look", "second query", "tool answer", "answer before the edit",
           "answer after the edit", "sampled opening", "sampled closing"]  # fmt: skip
THOUGHTS = ["plain thought", "thought before calls", "thought in between", "thought at the end",
            "thought before the edit", "thought after the edit", "opening thought", "closing thought"]  # fmt: skip
CONTEXT = ["question", "system", "result", "written by hand", "something"]

CARRY_EVERYTHING = {"glm4moe", "nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning",
                    "qwen3", "qwen3_5_think", "qwen3_6", "qwen3_8"}  # fmt: skip
"""Families whose templates write tool calls, reasoning and text side by side; the others leave something out."""


@pytest.fixture(autouse=True)
def exact_numbers(monkeypatch):
    """As `train_sft.py` has it."""
    import pandas

    monkeypatch.setattr(pandas.io.json, "ujson_loads", json.loads)
    monkeypatch.setattr(pandas.io.json, "ujson_dumps", json.dumps)


def as_qwen3(message):
    """A message of the model as Qwen 3 writes it, up to the token that ends the turn."""
    text = f"<think>\n{message.get('reasoning', '')}\n</think>\n\n{message['content'] or ''}"
    for at, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        text += "\n" if at or message["content"] else ""
        text += f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}\n</tool_call>'
    return text + "<|im_end|>\n"


@pytest.mark.parametrize("preset", [TRL, TRL_TURNS], ids=lambda preset: preset.name)
def test_the_loss_falls_on_every_sampled_message_once_and_on_nothing_else(tmp_path, preset):
    sampled = [as_qwen3(row.messages[at]) for row in rows() for at in row.trained]
    texts = trained_texts(sft_trainer(rows(), preset, tmp_path, "qwen3"))
    assert len(texts) == {"trl": 6, "trl-turns": 8}[preset.name]
    assert Counter(re.findall(r".*?<\|im_end\|>\n", "".join(texts), re.DOTALL)) == Counter(sampled)
    assert "".join(texts) == "".join(sampled)


def test_a_turn_of_the_model_that_is_context_splits_the_row_and_is_not_trained(tmp_path):
    trainer = sft_trainer(rows_of_graph(interrupted(), {}), TRL, tmp_path, "qwen3")
    whole = [trainer.processing_class.decode(row["input_ids"]) for row in trainer.train_dataset]
    assert ["written by hand" in text for text in whole] == [False, True]
    assert ["written by hand" in text for text in trained_texts(trainer)] == [False, False]
    assert "sampled opening" in whole[1]
    assert "sampled opening" not in trained_texts(trainer)[1]


def test_trl_sees_every_turn_in_its_role_and_calls_and_results_once(tmp_path):
    trainer = sft_trainer(rows(), TRL, tmp_path, "qwen3")
    sources = [row for row in rows() for _ in trl_rows(row)]
    for prepared, source in zip(trainer.train_dataset, sources, strict=True):
        text = trainer.processing_class.decode(prepared["input_ids"])
        turns = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", text, re.DOTALL)
        expected = list(chatml_turns(source.messages))[: len(turns)]
        assert [role for role, _ in turns] == [role for role, _ in expected]
        assert all(said in turn for (_, turn), (_, said) in zip(turns, expected, strict=True))
    text = trainer.processing_class.decode(trainer.train_dataset[1]["input_ids"])
    for once in ("first query", "[0.41, 1e-12, 52.51703650000001]", "second query", "\nsearch result", '"measured": '):
        assert text.count(once) == 1, once
    assert text.count("<tool_response>") == 3


def chatml_turns(messages):
    """Roles as ChatML has them, results joined into a user turn, each with a text that must stand in it."""
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            yield "assistant", as_qwen3(message).removesuffix("<|im_end|>\n")
        elif message["role"] != "tool":
            yield message["role"], message["content"]
        elif messages[at - 1]["role"] != "tool":
            yield "user", f"<tool_response>\n{message['content']}\n</tool_response>"


def test_in_no_family_that_trl_can_mark_is_context_trained(tmp_path):
    """And in those whose templates can say it, nothing that was sampled is missing."""
    from jinja2 import TemplateError

    families = sorted(path.stem.removesuffix("_training") for path in templates().glob("*_training.jinja"))
    assert set(families) >= CARRY_EVERYTHING
    took = []
    for family in families:
        try:
            trainer = sft_trainer(rows(), TRL, tmp_path / family, family)
        except TemplateError:  # says aloud that it wants no system turn, no tools, or images
            continue
        took.append(family)
        text = "".join(trained_texts(trainer))
        assert not [context for context in CONTEXT if context in text], family
        if family in CARRY_EVERYTHING:
            assert [text.count(once) for once in TRAINED + THOUGHTS] == [1] * 17, family
    assert set(took) >= CARRY_EVERYTHING | {"qwen2_5", "llama3", "deepseekv3"}


def test_a_template_that_trl_cannot_mark_is_refused_aloud_and_trl_turns_serves_it(tmp_path):
    some = [row for make in (plain_chat, edited, interrupted) for row in rows_of_graph(make(), {})]
    with pytest.raises(ValueError, match="not training-compatible"):
        sft_trainer(some, TRL, tmp_path / "trl", "llama3_1")
    texts = trained_texts(sft_trainer(some, TRL_TURNS, tmp_path / "turns", "llama3_1"))
    sampled = [row.messages[at]["content"] for row in some for at in row.trained]
    assert texts == [f"{content}<|eot_id|>" for content in sampled]


def test_a_step_of_real_training_changes_the_model(tmp_path):
    trainer = sft_trainer(rows(), TRL, tmp_path, "qwen3", max_steps=1, save_strategy="no", learning_rate=0.01)
    before = trainer.model.model.embed_tokens.weight.detach().clone()
    outcome = trainer.train()
    assert outcome.global_step == 1
    assert 4 < outcome.training_loss < 7  # about ln 259, as it should be for a model that knows nothing
    assert not before.equal(trainer.model.model.embed_tokens.weight)


@pytest.mark.parametrize("preset", [TRL, TRL_TURNS], ids=lambda preset: preset.name)
def test_the_script_beside_the_rows_runs_as_it_is(tmp_path, preset):
    tokenizer("qwen3").save_pretrained(tmp_path / "model")
    model().save_pretrained(tmp_path / "model")
    report = export((row for row in rows_of_graph(tool_use(), {})), preset, tmp_path / "rows")
    assert report.sidecars == [str(tmp_path / "rows" / name) for name in ("features.json", "train_sft.py")]
    run = subprocess.run(
        [sys.executable, tmp_path / "rows" / "train_sft.py", tmp_path / "model"],
        cwd=tmp_path, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    assert '{"at": [0.41, 1e-12, 52.51703650000001], "q": null}' in run.stdout
    assert "train_loss" in run.stdout


def test_the_samples_are_what_the_tests_take_them_for():
    assert len(GRAPHS) == 4
    assert sum(len(row.trained) for row in rows()) == 8
