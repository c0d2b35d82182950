"""`examples/train`, shortened: rollouts of the embedded model, their proof, and both ways to train on them."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from embedded import smollm2

TRAIN = Path(__file__).parents[3] / "examples" / "train"
missing = [name for name in ("gguf", "xllamacpp", "aiohttp") if not importlib.util.find_spec(name)]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)} (make test-trainers)")


def run(*command):
    clean = {name: value for name, value in os.environ.items() if name not in ("HF_HOME", "HF_DATASETS_CACHE")}
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=600, env=clean)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    smollm2()
    folder = tmp_path_factory.mktemp("data")
    run(TRAIN / "rollouts.py", folder, "--samples", 2)
    assert "proven: root" in run("-m", "stemma", "verify", folder)
    return folder


def test_the_rows_train_by_trl(data):
    told = run(TRAIN / "sft.py", data, "--steps", 3)
    first, last = map(float, re.findall(r"loss fell from ([\d.]+) to ([\d.]+)", told)[0])
    assert last < first


def test_the_rows_train_by_policy_gradient_and_their_first_ratio_is_near_one(data):
    told = run(TRAIN / "policy_gradient.py", data, "--steps", 2, "--samples", 2)
    assert 0.7 < float(re.findall(r"ratio ([\d.]+)  rollouts of llama.cpp", told)[0]) < 1.3
    assert "own samples" in told
