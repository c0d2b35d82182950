"""What LLaMA-Factory's labels train of the truth harness's conversations is what was sampled, and nothing else."""

import pytest

from trainers.llamafactory.conftest import texts_and_trained
from truth.judge import told
from truth.labels import exported, judge_marks, world_for_trainers
from truth.readers import records


@pytest.fixture(scope="module")
def world():
    return world_for_trainers()


@pytest.mark.parametrize("template", ["qwen3_nothink", "qwen3"])
@pytest.mark.parametrize("preset", ["llamafactory", "llamafactory-turns"])
def test_the_labels_train_what_was_sampled_and_nothing_else(tmp_path, world, preset, template):
    folder = exported(world, preset, tmp_path)
    prepared = texts_and_trained(folder, template)
    assert len(prepared) == len(list(records(folder)))
    faults = judge_marks(world, preset, folder, ["".join(trained) for _, trained in prepared], template)
    assert not faults, told(faults)
