"""What axolotl's labels train of the truth harness's conversations is what was sampled, and nothing else."""

import pytest

from trainers.axolotl.conftest import config_of, template_of, tokenized, tokenizer
from truth.judge import told
from truth.labels import UNMARKED, exported, judge_labels, judge_marks, world_for_trainers


@pytest.fixture(scope="module")
def world():
    return world_for_trainers()


@pytest.mark.parametrize("preset", ["axolotl", "axolotl-turns"])
def test_the_labels_train_what_was_sampled_and_nothing_else(tmp_path, world, preset):
    folder = exported(world, preset, tmp_path)
    words = tokenizer(UNMARKED)
    rows = [(row["input_ids"], row["labels"]) for row in tokenized(config_of(folder), words)]
    faults = judge_labels(world, preset, folder, rows, words)
    assert not faults, told(faults)


def test_the_mapping_beside_hermes_rows_trains_what_was_sampled_and_nothing_else(tmp_path, world):
    folder = exported(world, "hermes", tmp_path)
    words = tokenizer(UNMARKED)
    rows = [(row["input_ids"], row["labels"]) for row in tokenized(config_of(folder), words)]
    faults = judge_labels(world, "hermes", folder, rows, words)
    assert not faults, told(faults)


def test_with_the_template_of_a_reasoning_model_each_reply_is_trained_once(tmp_path, world):
    folder = exported(world, "axolotl-turns", tmp_path)
    words = tokenizer(template_of("qwen3"))
    texts = [
        words.decode([label for label in row["labels"] if label != -100]) for row in tokenized(config_of(folder), words)
    ]
    faults = judge_marks(world, "axolotl-turns", folder, texts, "qwen3")
    assert not faults, told(faults)
