"""Contexts rendered anew, for distillation: by the model's own template and tokenizer, without what only a call saw."""

import json

import pytest

from stemma.core.call import unpack_ids
from stemma.core.token_calls import captured
from stemma.errors import BadRecord, NotFound
from stemma.formats.token_render import renderer, token_text
from token_conversations import Chat, user

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'stemmata[tokens]'")
TEMPLATE = "{{ bos_token }}{% for m in messages %} {{ m.role }} {{ m.content }}{% endfor %} go"


@pytest.fixture
def tokenizer(tmp_path):
    """A tokenizer of words, with its file of settings beside it."""
    vocabulary = {word: n for n, word in enumerate(["[UNK]", "<s>", "user", "hi", "go"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    settings = {"chat_template": TEMPLATE, "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tmp_path / "tokenizer.json"


def test_a_context_is_written_by_the_template_without_what_only_the_call_saw(tokenizer):
    pytest.importorskip("jinja2", reason="needs jinja2: pip install 'stemmata[tokens]'")
    [one] = captured(Chat(user("hi")).says("yes", extra={"ephemeral": "psst"}).graph)
    assert list(unpack_ids(renderer(tokenizer)(one))) == [1, 2, 3, 4]


def test_a_token_has_its_text(tokenizer):
    assert token_text(tokenizer)(3) == "hi"


def test_what_is_missing_is_named(tokenizer):
    with pytest.raises(NotFound, match="no tokenizer at"):
        token_text(tokenizer.with_name("none.json"))
    tokenizer.with_name("tokenizer_config.json").write_text("[")
    with pytest.raises(BadRecord, match="no tokenizer configuration"):
        renderer(tokenizer)
    tokenizer.with_name("tokenizer_config.json").unlink()
    with pytest.raises(NotFound, match="no chat template beside"):
        renderer(tokenizer)


@pytest.fixture
def truncating(tokenizer):
    """The same, as files made for training are: cut at two tokens and padded to eight."""
    made = tokenizers.Tokenizer.from_file(str(tokenizer))
    made.enable_truncation(2)
    made.enable_padding(length=8)
    made.save(str(tokenizer))
    return tokenizer


def test_a_truncation_or_padding_in_the_file_changes_no_context_and_no_count(truncating):
    from stemma.formats.counting import token_counter

    [one] = captured(Chat(user("hi hi hi hi hi hi hi hi hi")).says("yes", extra={"ephemeral": "psst"}).graph)
    assert list(unpack_ids(renderer(truncating)(one))) == [1, 2, *[3] * 9, 4]
    assert token_counter(truncating)(["hi " * 100, "hi"]) == 101


def test_a_tokenizer_may_be_named_by_its_folder(tokenizer):
    assert token_text(tokenizer.parent)(3) == "hi"
