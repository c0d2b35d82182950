"""A tokenizer that loses nothing, a model that knows nothing, and TRL's trainer around them; all offline."""

import importlib.util
import os
from pathlib import Path

import pytest

from stemma.formats.export import export


def pytest_collection_modifyitems(items):
    """Third-party warnings are theirs; and without the packages there is nothing to test."""
    missing = [name for name in ("torch", "trl", "datasets", "transformers") if not importlib.util.find_spec(name)]
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            if missing:
                reason = f"needs the package {missing[0]} (make test-trainers)"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def offline(tmp_path_factory):
    """No hub, and caches that end with the session."""
    home = str(tmp_path_factory.mktemp("home"))
    os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=home, HF_DATASETS_CACHE=home)
    # Some virtual machines announce AMX and do not have it: bfloat16, TRL's default, ends with an illegal instruction.
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"


def templates() -> Path:
    import trl

    return Path(trl.__file__).parent / "chat_templates"


def tokenizer(template: str):
    """One token a byte, and TRL's copy of a model's chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={character: at for at, character in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "additional_special_tokens": ["<|im_start|>"]}
    outer = PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    outer.chat_template = (templates() / f"{template}.jinja").read_text(encoding="utf-8")
    return outer


def model():
    """About 12,000 random weights."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    size = {"vocab_size": 259, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    return AutoModelForCausalLM.from_config(Qwen3Config(**size, **heads, max_position_embeddings=16384))


def sft_trainer(rows, preset, folder, template, **options):
    """TRL's trainer over an export of `rows`, configured as `train_sft.py` does it."""
    from trl import SFTConfig, SFTTrainer

    export(rows, preset, folder)
    both = {"completion_only_loss": True, "assistant_only_loss": preset.name == "trl", "max_length": None}
    here = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "shuffle_dataset": False}
    args = SFTConfig(output_dir=str(folder / "sft"), **both, **here, **options)
    return SFTTrainer(model(), args=args, train_dataset=load(folder), processing_class=tokenizer(template))


def load(folder):
    """The rows as `train_sft.py` loads them, but for its parser of numbers."""
    import json

    from datasets import Features, disable_progress_bars, load_dataset

    disable_progress_bars()
    features = Features.from_dict(json.loads((folder / "features.json").read_text()))
    return load_dataset("json", data_files=str(folder / "train.jsonl"), features=features, split="train")


def trained_texts(trainer) -> list[str]:
    """What carries loss in each row, as text."""
    decode = trainer.processing_class.decode
    return [decode([token for token in row["labels"] if token != -100]) for row in trainer.train_dataset]
