"""What TRL's and unsloth's labels train of the truth harness's conversations is what was sampled, and nothing else."""

import importlib.util
import json

import pytest

from trainers.trl.conftest import load, model, tokenizer
from truth.judge import told
from truth.labels import TEMPLATE, UNMARKED, exported, judge_labels, judge_marks, world_for_trainers


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


@pytest.mark.skipif(
    not importlib.util.find_spec("unsloth_zoo"), reason="needs the package unsloth_zoo (make test-trainers)"
)
def test_what_unsloth_masks_leaves_what_was_sampled_and_nothing_else(tmp_path, world, monkeypatch):
    monkeypatch.setenv("UNSLOTH_ZOO_DISABLE_GPU_INIT", "1")
    from unsloth_zoo.dataset_utils import standardize_data_formats, train_on_responses_only

    folder = exported(world, "unsloth", tmp_path)
    words = tokenizer("qwen3")
    words.chat_template = UNMARKED
    mask = train_on_responses_only(
        None, "<|im_start|>user\n", "<|im_start|>assistant\n", tokenizer=words, return_function=True
    )
    rows = []
    for row in standardize_data_formats(load_dataset_of(folder)):
        ids = words(words.apply_chat_template(row["conversations"], tokenize=False))["input_ids"]
        rows.append((ids, mask({"input_ids": [ids]})["labels"][0]))
    faults = judge_labels(world, "unsloth", folder, rows, words)
    assert not faults, told(faults)


def load_dataset_of(folder):
    """The rows as the cells beside unsloth's load them."""
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    return load_dataset("json", data_files=str(folder / "train.jsonl"), split="train")
