"""Small real tokenizers, trained here: of the kinds that people use."""

from functools import cache
from pathlib import Path

import needs

GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SPLITS = {
    "gpt2": lambda: _tokenizers().pre_tokenizers.ByteLevel(add_prefix_space=False),
    "gpt4": lambda: by_pattern(GPT4),
    "qwen": lambda: by_pattern(QWEN),
    "smollm": lambda: by_digits(),
    "o200k": lambda: by_pattern(GPT4O),
    "brackets": lambda: by_pattern(r"\p{L}+\(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"),
    "two words": lambda: by_pattern(r"\S+ \S+|\S+|\s+"),
    "sentencepiece": lambda: _tokenizers().pre_tokenizers.Metaspace(),
}


def _tokenizers():
    return needs.package("tokenizers", "tokens")


def by_digits():
    pre_tokenizers = _tokenizers().pre_tokenizers
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def by_pattern(pattern):
    pre_tokenizers = _tokenizers().pre_tokenizers
    split = pre_tokenizers.Split(_tokenizers().Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@cache
def tokenizer(kind="gpt2"):
    tokenizers = _tokenizers()
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = SPLITS[kind]()
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    made.train_from_iterator([Path(__file__).read_text(encoding="utf-8")], trainer)
    return made


def save(folder, kind="gpt2"):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(kind).save(str(folder / "tokenizer.json"))
    return folder
