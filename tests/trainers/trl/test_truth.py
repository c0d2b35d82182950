"""What TRL's labels train of the truth harness's conversations is what was sampled, and nothing else."""

import json

import pytest

from trainers.trl.conftest import load, model, tokenizer
from truth.judge import told
from truth.labels import TEMPLATE, exported, judge_labels, judge_marks, world_for_trainers


@pytest.fixture(scope="module")
def world():
    return world_for_trainers()


@pytest.fixture(autouse=True)
def exact_numbers(monkeypatch):
    """As `train_sft.py` has it."""
    import pandas

    monkeypatch.setattr(pandas.io.json, "ujson_loads", json.loads)
    monkeypatch.setattr(pandas.io.json, "ujson_dumps", json.dumps)


def prepared(folder, preset, words):
    """TRL's trainer over an export, as `train_sft.py` configures it."""
    from trl import SFTConfig, SFTTrainer

    both = {"completion_only_loss": True, "assistant_only_loss": preset == "trl", "max_length": None}
    here = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "shuffle_dataset": False}
    args = SFTConfig(output_dir=str(folder / "sft"), **both, **here)
    return SFTTrainer(model(), args=args, train_dataset=load(folder), processing_class=words).train_dataset


@pytest.mark.parametrize("preset", ["trl", "trl-turns"])
def test_the_labels_train_what_was_sampled_and_nothing_else(tmp_path, world, preset):
    folder = exported(world, preset, tmp_path)
    words = tokenizer("qwen3")
    words.chat_template = TEMPLATE
    rows = [(row["input_ids"], row["labels"]) for row in prepared(folder, preset, words)]
    faults = judge_labels(world, preset, folder, rows, words)
    assert not faults, told(faults)


@pytest.mark.parametrize("preset", ["trl", "trl-turns"])
def test_with_the_template_of_a_reasoning_model_each_reply_is_trained_once(tmp_path, world, preset):
    folder = exported(world, preset, tmp_path)
    words = tokenizer("qwen3")
    texts = [
        words.decode([label for label in row["labels"] if label != -100]) for row in prepared(folder, preset, words)
    ]
    faults = judge_marks(world, preset, folder, texts, "qwen3")
    assert not faults, told(faults)
