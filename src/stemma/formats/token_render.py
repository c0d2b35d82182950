"""A context as token ids, by a model's own tokenizer and chat template.

Only `--distill` needs it: to write the context of a call without what only that call saw. The result is what the
template makes of the messages today, so rows made with it are marked as off-policy. The template runs in jinja's
immutable sandbox. Needs `pip install 'stemmata[tokens]'`. `tests/formats/test_token_render.py` proves it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stemma.core.call import pack_ids
from stemma.core.token_calls import Captured
from stemma.core.token_rows import Render
from stemma.errors import BadRecord, MissingExtra, NotFound
from stemma.formats.chat_template import compile_template


def open_tokenizer(path: Path) -> Any:
    """The `tokenizers.Tokenizer` of a tokenizer.json."""
    try:
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise MissingExtra("this needs tokenizers: pip install 'stemmata[tokens]'") from problem
    if not path.is_file():
        raise NotFound(f"there is no tokenizer at {path}; give the path of a tokenizer.json")
    return Tokenizer.from_file(str(path))


def token_text(path: Path) -> Callable[[int], str]:
    """A function that gives the text of a token."""
    tokenizer = open_tokenizer(path)
    return lambda token: str(tokenizer.decode([token], skip_special_tokens=False))


def renderer(path: Path) -> Render:
    """A function that gives the ids of a call's context, from a tokenizer.json and the template beside it."""
    tokenizer, template, special = open_tokenizer(path), _template(path), _special(path)

    def render(one: Captured) -> bytes:
        messages = [_told(message.to_dict()) for message in one.line]
        text = template.render(messages=messages, tools=one.call.tools, add_generation_prompt=True, **special)
        return pack_ids(tokenizer.encode(_clean(text), add_special_tokens=False).ids)

    return render


def _told(message: dict[str, Any]) -> dict[str, Any]:
    """With the reasoning where most templates look for it."""
    thought = message.get("reasoning")
    return {**message, "reasoning_content": thought} if isinstance(thought, str) else message


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _template(path: Path) -> Any:
    own = path.with_name("chat_template.jinja")
    source = own.read_text(encoding="utf-8") if own.is_file() else _settings(path).get("chat_template")
    if not isinstance(source, str):
        raise NotFound(
            f"there is no chat template beside {path}: put a chat_template.jinja or tokenizer_config.json there"
        )
    return compile_template(source)


def _special(path: Path) -> dict[str, str]:
    """The names of tokens that a template may write."""
    found = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = _settings(path).get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def _settings(path: Path) -> dict[str, Any]:
    file = path.with_name("tokenizer_config.json")
    if not file.is_file():
        return {}
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise BadRecord(f"is no tokenizer configuration: {problem}", str(file)) from problem
