"""Counting by pieces gives what the tokenizer gives, for any text; and only tokenizers that allow it are cut up."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needs
from compress.tokenizer_files import tokenizer
from stemma.compress import pieces
from stemma.compress.pieces import Pieces, parts_words

tokenizers = needs.package("tokenizers", "tokens")
CONTROL = ["<|im_start|>", "<|im_end|>", "two words", "two"]
KINDS = ["gpt2", "gpt4", "o200k", "qwen", "smollm"]
SOURCE = Path(__file__).read_text(encoding="utf-8")
ODD = st.text(
    st.one_of(
        st.sampled_from(" \n\t\r\u00a0\u2028\x1c\u3000aZ1.,'()<|>_é中🙂\u0301\u200d"), st.characters(codec="utf-8")
    ),
    max_size=60,
)


@cache
def with_control_tokens(kind):
    made = tokenizers.Tokenizer.from_str(tokenizer(kind).to_str())
    made.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in CONTROL])
    return made


def encode(made):
    return lambda texts: [len(found) for found in made.encode_batch(list(texts), add_special_tokens=False)]


@pytest.mark.parametrize("kind", KINDS)
@given(
    texts=st.lists(
        ODD | st.sampled_from(["it's a <|im_end|> 'll do two words\n\n  x", "x<|im_end|>(y", SOURCE]), max_size=4
    )
)
@settings(max_examples=150)
def test_any_text_has_as_many_tokens_as_its_pieces(kind, texts):
    made = with_control_tokens(kind)
    assert Pieces(encode(made), CONTROL).count(texts) == encode(made)(texts)


@given(ODD)
def test_the_pieces_are_the_text(text):
    assert "".join(pieces._PIECE.findall(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizers_of_today_are_counted_by_pieces(kind):
    assert parts_words(with_control_tokens(kind))


@pytest.mark.parametrize("kind", ["two words", "brackets", "sentencepiece"])
def test_a_tokenizer_that_joins_words_is_asked_as_it_is(kind):
    assert not parts_words(tokenizer(kind))


def test_what_would_reach_across_a_space_is_not_cut():
    for change in (
        lambda made: made.add_tokens([tokenizers.AddedToken("eats", rstrip=True)]),
        lambda made: made.add_tokens([tokenizers.AddedToken("eats", lstrip=True)]),
        lambda made: made.add_tokens([tokenizers.AddedToken("alone", single_word=True)]),
        lambda made: setattr(made, "normalizer", tokenizers.normalizers.Strip()),
    ):
        made = tokenizers.Tokenizer.from_str(tokenizer().to_str())
        change(made)
        assert not parts_words(made)


def test_a_piece_is_encoded_once_and_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(pieces, "_MOST_PIECES", 10)
    asked = []

    def count_all(texts):
        asked.append(list(texts))
        return [1] * len(texts)

    counter = Pieces(count_all)
    assert counter.count(["a b c", "a b"]) == [3, 2]
    assert counter.count(["a b c"]) == [3]
    assert asked[1] == []
    many = [" ".join(f"w{n}-{i}" for i in range(20)) for n in range(3)]
    counter.count(many[:1])
    assert counter.count(["a b"]) == [2]
    assert asked[-1] == [], "what is met again stays known"
    counter.count(many[1:2])
    counter.count(many[2:])
    assert counter.count(["a b"]) == [2]
    assert sorted(asked[-1]) == [" b", "a"], "what is not met for long is forgotten"
