"""unsloth's own code on our rows: `standardize_data_formats` takes them, `train_on_responses_only` trains our turns.

Both are unsloth's (package unsloth_zoo, installed without its dependencies, which are CUDA's, and told to start no
GPU). Not run: `FastLanguageModel`, and so the cells beside the rows as a whole; it is only checked that they compile.
"""

import importlib.util
import json

import pytest

from stemma.formats.export import export
from stemma.formats.unsloth import UNSLOTH
from trainers.trl.conftest import tokenizer
from trainers.trl.samples import TOOLS, rows

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("unsloth_zoo"), reason="needs the package unsloth_zoo (make test-trainers)"
)


@pytest.fixture
def unsloth(monkeypatch):
    monkeypatch.setenv("UNSLOTH_ZOO_DISABLE_GPU_INIT", "1")
    import unsloth_zoo.dataset_utils

    return unsloth_zoo.dataset_utils


@pytest.fixture
def loaded(tmp_path):
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    report = export(rows(), UNSLOTH, tmp_path)
    assert (report.written, report.trained_messages) == (4, 6)
    left_out = {reason: (met.replies, met.rows) for reason, met in report.left_out.items()}
    assert left_out == {"context turn of the model": (2, 2)}
    compile((tmp_path / "train_unsloth.py").read_text(), "train_unsloth.py", "exec")
    return load_dataset("json", data_files=str(tmp_path / "train.jsonl"), split="train")


def test_unsloth_takes_every_turn_as_it_is(unsloth, loaded):
    standard = unsloth.standardize_data_formats(loaded)
    assert standard["conversations"] == loaded["conversations"]
    assert [turn["role"] for turn in standard[1]["conversations"]] == [
        "system", "user", "assistant", "user", "assistant", "user", "assistant",
    ]  # fmt: skip


def test_unsloth_trains_the_sampled_messages_and_nothing_else(unsloth, loaded):
    tokens = tokenizer("qwen2_5")  # which leaves <think> alone
    mask = unsloth.train_on_responses_only(
        None, "<|im_start|>user\n", "<|im_start|>assistant\n", tokenizer=tokens, return_function=True
    )
    for row in unsloth.standardize_data_formats(loaded):
        ids = tokens(tokens.apply_chat_template(row["conversations"], tokenize=False))["input_ids"]
        (labels,) = mask({"input_ids": [ids]})["labels"]
        trained = tokens.decode([label for label in labels if label != -100])
        said = [turn["content"] for turn in row["conversations"] if turn["role"] == "assistant"]
        assert trained.replace("\n<|im_end|>", "<|im_end|>") == "".join(f"{text}<|im_end|>" for text in said)


def test_calls_and_results_stand_there_once_and_the_tools_are_told(loaded):
    text = json.dumps(loaded[1]["conversations"], ensure_ascii=False).replace('\\"', '"')
    for once in ('"q": "first query"', "0.41, 1e-12, 52.51703650000001", '"content": "search result"', "tool system"):
        assert text.count(once) == 1, once
    assert all(text.count(f'"name": "{tool["function"]["name"]}", "description"') == 1 for tool in TOOLS)
