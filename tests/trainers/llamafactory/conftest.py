"""A tokenizer that loses nothing, and LLaMA-Factory's own way from its config to labels; all offline."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from pathlib import Path

import pytest

NEEDED = ("llamafactory", "torch", "datasets", "transformers", "trl", "peft", "yaml")


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
    """No hub, caches that end with the session, and a torchaudio that can be imported."""
    home = str(tmp_path_factory.mktemp("home"))
    os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=home, HF_DATASETS_CACHE=home)
    # LLaMA-Factory imports it to read sound files. Its wheel is linked with CUDA and cannot be loaded beside a torch
    # for the CPU; rows of text need nothing of it.
    if not importlib.util.find_spec("torchaudio"):
        empty = types.ModuleType("torchaudio")
        empty.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
        sys.modules["torchaudio"] = empty


def tokenizer():
    """One token a byte, one for each special token, and those that begin and end a turn of ChatML."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={character: at for at, character in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    names = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>")
    marks = ["<|im_start|>", "<|im_end|>"]
    return PreTrainedTokenizerFast(tokenizer_object=inner, additional_special_tokens=marks, **names)


def data_arguments(folder: Path, template: str):
    """The config beside an export, as LLaMA-Factory reads it."""
    import yaml
    from llamafactory.hparams import DataArguments
    from transformers import HfArgumentParser

    config = yaml.safe_load((folder / "llamafactory.yml").read_text(encoding="utf-8"))
    config.update(dataset_dir=str(folder), template=template, overwrite_cache=True)
    return HfArgumentParser(DataArguments).parse_dict(config)[0]


def training_arguments(folder: Path):
    from transformers import Seq2SeqTrainingArguments

    return Seq2SeqTrainingArguments(output_dir=str(folder / "out"), report_to=[], use_cpu=True)


def model_arguments(folder: Path):
    from llamafactory.hparams import ModelArguments

    return ModelArguments(model_name_or_path="none", cache_dir=str(folder / "cache"))


def prepared(folder: Path, template: str):
    """The rows as LLaMA-Factory prepares them for SFT, and the tokenizer as its template has left it."""
    from datasets import disable_progress_bars
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer

    disable_progress_bars()
    words, arguments = tokenizer(), data_arguments(folder, template)
    chosen = get_template_and_fix_tokenizer(words, arguments)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its first example
        rows = get_dataset(
            chosen, model_arguments(folder), arguments, training_arguments(folder), stage="sft", tokenizer=words
        )["train_dataset"]
    return rows, words


def texts_and_trained(folder: Path, template: str) -> list[tuple[str, list[str]]]:
    """Each row's whole text, and the stretches of it that carry loss."""
    rows, words = prepared(folder, template)
    return [(words.decode(row["input_ids"]), stretches(row["labels"], words)) for row in rows]


def stretches(labels, words) -> list[str]:
    found: list[list[int]] = [[]]
    for label in labels:
        if label != -100:
            found[-1].append(label)
        elif found[-1]:
            found.append([])
    return [words.decode(part) for part in found if part]
