"""A model's tokenizer as it lies on disk: tokenizer.json, with its settings and chat template beside it.

`open_tokenizer` is the one way to open one. A tokenizer.json made for training often carries a truncation or a padding;
both are switched off, because what is counted or written here is always the whole text. Nothing is downloaded and no
code of a tokenizer is run. Needs `pip install 'stemmata[tokens]'`. `tests/formats/test_token_render.py` proves it.
"""

from pathlib import Path
from typing import Any

import msgspec

from stemma.errors import BadRecord, MissingExtra, NotFound

FILE = "tokenizer.json"


def open_tokenizer(path: Path) -> Any:
    """The `tokenizers.Tokenizer` of a tokenizer.json or of its folder, without truncation or padding."""
    try:
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise MissingExtra("this needs tokenizers: pip install 'stemmata[tokens]'") from problem
    file = tokenizer_file(path)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as problem:  # the library raises nothing narrower
        raise BadRecord(f"is no tokenizer.json: {problem}", str(file)) from problem
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenizer_file(path: Path) -> Path:
    """The tokenizer.json that `path` means: itself, or the one in that folder."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise NotFound(f"there is no tokenizer at {path}; give the path of a tokenizer.json")
    return file


def settings_beside(file: Path) -> dict[str, Any]:
    """What tokenizer_config.json beside `file` says; nothing if there is none."""
    config = file.with_name("tokenizer_config.json")
    if not config.is_file():
        return {}
    try:
        return msgspec.json.decode(config.read_bytes(), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise BadRecord(f"is no tokenizer configuration: {problem}", str(config)) from problem


def template_beside(file: Path, settings: dict[str, Any]) -> str | None:
    """The chat template: a file beside the tokenizer, or in its settings, alone or under the name `default`."""
    own = file.with_name("chat_template.jinja")
    if own.is_file():
        return own.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if isinstance(found, list):
        found = next((one.get("template") for one in found if one.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """The tokens that templates name: bos_token and its like."""
    tokens = {name: value for name, value in settings.items() if name.endswith("_token")}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}
