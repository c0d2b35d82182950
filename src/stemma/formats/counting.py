"""Counting tokens with a `tokenizer.json`: no template, no hub, no remote code. Needs the extra `tokens`."""

from pathlib import Path

from stemma.errors import MissingExtra, NotFound
from stemma.formats.export import Count


def token_counter(path: Path) -> Count:
    """A function that counts the tokens of texts."""
    try:
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise MissingExtra("counting tokens needs tokenizers: pip install 'stemmata[tokens]'") from problem
    if not path.is_file():
        raise NotFound(f"there is no tokenizer at {path}; give the path of a tokenizer.json")
    tokenizer = Tokenizer.from_file(str(path))

    def count(texts: list[str]) -> int:
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        return sum(len(found.ids) for found in tokenizer.encode_batch_fast(clean, add_special_tokens=False))

    return count
