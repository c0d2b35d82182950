"""A context as token ids, by a model's own tokenizer and chat template.

Only `--distill` needs it: to write the context of a call without what only that call saw. The result is what the
template makes of the messages today, so rows made with it are marked as off-policy. The template runs in jinja's
immutable sandbox. Needs `pip install 'stemmata[tokens]'`. `tests/formats/test_token_render.py` proves it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stemma.core.call import pack_ids
from stemma.core.token_calls import Captured
from stemma.core.token_rows import Render
from stemma.errors import NotFound
from stemma.formats.chat_template import compile_template
from stemma.formats.tokenizer import open_tokenizer, settings_beside, special_tokens, template_beside, tokenizer_file


def token_text(path: Path) -> Callable[[int], str]:
    """A function that gives the text of a token."""
    tokenizer = open_tokenizer(path)
    return lambda token: str(tokenizer.decode([token], skip_special_tokens=False))


def renderer(path: Path) -> Render:
    """A function that gives the ids of a call's context, from a tokenizer.json and the template beside it."""
    tokenizer, file = open_tokenizer(path), tokenizer_file(path)
    settings = settings_beside(file)
    template, special = _template(file, settings), special_tokens(settings)

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


def _template(file: Path, settings: dict[str, Any]) -> Any:
    source = template_beside(file, settings)
    if source is None:
        raise NotFound(
            f"there is no chat template beside {file}: put a chat_template.jinja or tokenizer_config.json there"
        )
    return compile_template(source)
