"""Counting tokens with a `tokenizer.json`: no template, no hub, no remote code. Needs the extra `tokens`."""

from pathlib import Path

from stemma.formats.export import Count
from stemma.formats.tokenizer import open_tokenizer


def token_counter(path: Path) -> Count:
    """A function that counts the tokens of texts."""
    tokenizer = open_tokenizer(path)

    def count(texts: list[str]) -> int:
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        return sum(len(found.ids) for found in tokenizer.encode_batch_fast(clean, add_special_tokens=False))

    return count
