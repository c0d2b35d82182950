"""A tokenizer that loses nothing, and axolotl's own way from its config to labels; all offline."""

import importlib.util
import os
from pathlib import Path

import pytest

NEEDED = ("axolotl", "torch", "datasets", "transformers", "peft", "trl", "yaml")


def pytest_collection_modifyitems(items):
    """Third-party warnings are theirs; and without the packages there is nothing to test."""
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"needs the package {missing[0]} (make test-trainers)"))


@pytest.fixture(scope="session", autouse=True)
def offline(tmp_path_factory):
    """No hub, no telemetry, and caches that end with the session."""
    home = str(tmp_path_factory.mktemp("home"))
    os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=home, HF_DATASETS_CACHE=home)
    os.environ.update(AXOLOTL_DO_NOT_TRACK="1", DO_NOT_TRACK="1", TRL_EXPERIMENTAL_SILENCE="1")


def tokenizer(template: str):
    """One token a byte, one for each special token, and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={character: at for at, character in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    names = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    outer = PreTrainedTokenizerFast(tokenizer_object=inner, extra_special_tokens={"start": "<|im_start|>"}, **names)
    outer.chat_template = template
    return outer


def template_of(name: str) -> str:
    """One of the templates that axolotl brings along for well-known models."""
    from axolotl.utils.chat_templates import get_chat_template

    return get_chat_template(name)


def config_of(folder: Path, **options):
    """The config beside an export, as axolotl reads and completes it."""
    import yaml
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault

    config = DictDefault(yaml.safe_load((folder / "axolotl.yml").read_text(encoding="utf-8")))
    config.datasets[0].path = str(folder / config.datasets[0].path)
    run = {"base_model": "none", "sequence_len": 1 << 16, "micro_batch_size": 1, "gradient_accumulation_steps": 1}
    config.update(run, learning_rate=1e-4, num_epochs=1, **options)
    config = validate_config(config)
    config.dataset_num_proc = None  # in this process: a test has few rows
    return config


def loaded(config):
    """The rows as axolotl loads them from the file."""
    from axolotl.utils.data.shared import load_dataset_with_config
    from datasets import disable_progress_bars

    disable_progress_bars()
    return load_dataset_with_config(config.datasets[0], False)


def tokenized(config, words):
    """The rows with labels, made by the strategy that axolotl chooses for the config."""
    from axolotl.utils.data.wrappers import get_dataset_wrapper

    one = config.datasets[0]
    rows, _ = get_dataset_wrapper(
        dataset_config=one, tokenizer=words, cfg=config, dataset_base_type=one.type, dataset=loaded(config)
    )
    return rows


def texts_and_trained(rows, words) -> list[tuple[str, list[str]]]:
    """Each row's whole text, and the stretches of it that carry loss."""
    return [(words.decode(row["input_ids"]), stretches(row["labels"], words)) for row in rows]


def stretches(labels, words) -> list[str]:
    found: list[list[int]] = [[]]
    for label in labels:
        if label != -100:
            found[-1].append(label)
        elif found[-1]:
            found.append([])
    return [words.decode(part) for part in found if part]
