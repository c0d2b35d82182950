"""What LLaMA-Factory's labels train of the truth harness's conversations is what was sampled, and nothing else."""

import pytest

from trainers.llamafactory.conftest import prepared, texts_and_trained
from truth.judge import told
from truth.labels import exported, judge_labels, judge_marks, world_for_trainers
from truth.readers import records


@pytest.fixture(scope="module")
def world():
    return world_for_trainers()


@pytest.mark.parametrize("preset", ["llamafactory", "llamafactory-turns"])
def test_the_labels_train_what_was_sampled_and_nothing_else(tmp_path, world, preset):
    folder = exported(world, preset, tmp_path)
    rows, words = prepared(folder, "qwen3_nothink")
    faults = judge_labels(world, preset, folder, [(row["input_ids"], row["labels"]) for row in rows], words)
    assert not faults, told(faults)


@pytest.mark.parametrize("preset", ["llamafactory", "llamafactory-turns"])
def test_with_the_template_of_a_reasoning_model_each_reply_is_trained_once(tmp_path, world, preset):
    folder = exported(world, preset, tmp_path)
    found = texts_and_trained(folder, "qwen3")
    assert len(found) == len(list(records(folder)))
    faults = judge_marks(world, preset, folder, ["".join(trained) for _, trained in found], "qwen3")
    assert not faults, told(faults)
