"""What is secret stays out of what is shown, kept or given to a model, also when somebody echoes it.

Exact values are replaced, never patterns: a rule that guesses what looks like a key misses some vendors and mangles
what users wrote. The forms in which a program shows a value are known too: as it is, inside JSON, inside a URL, in hex,
and in base64, wherever in the encoded text it stands. Other forms (split, reversed, compressed, encrypted) are not: who
means to hide a secret from this can. A value under eight characters (`EMPTY`, `none`) is a placeholder: it protects
nothing, and it is also a word. `tests/test_redact.py` proves it.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

MASK = "[secret]"
SHORTEST = 8


class Redactor:
    """Replaces the secrets it was given."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        # The longest first: a form that holds another must go as a whole.
        alternatives = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        self._pattern = re.compile(alternatives) if alternatives else None

    def text(self, text: str) -> str:
        """`text` without the secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """A JSON value without the secrets; the very same object if there was none in it."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(MASK, value) if self._pattern.search(value) else value
        if isinstance(value, list):
            items = [self.value(item) for item in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        if isinstance(value, dict):
            return self._fields(value)
        return value

    def _fields(self, value: dict[str, Any]) -> dict[str, Any]:
        fields = {self.value(key): self.value(item) for key, item in value.items()}
        changed = fields.keys() != value.keys() or any(fields[key] is not value[key] for key in value)
        return fields if changed else value


def _forms(secret: str) -> set[str]:
    encoded = secret.encode("utf-8", "surrogatepass")
    whole = base64.b64encode(encoded).decode()
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    quoted = quote(secret, safe="", errors="replace")
    return {secret, quoted, encoded.hex(), encoded.hex().upper(), whole, *_inside_base64(encoded), *escaped}


def _inside_base64(secret: bytes) -> Iterator[str]:
    """The letters that a secret always becomes when it stands in a longer text: one row for each of three places.

    >>> [row in base64.b64encode(b"user:" + b"a secret").decode() for row in _inside_base64(b"a secret")]
    [False, False, True]
    """
    for before in range(3):
        row = base64.b64encode(bytes(before) + secret).decode()
        # Letters at the edges hold bits of what stands beside the secret.
        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        yield row[first:last]
        yield row[first:last].replace("+", "-").replace("/", "_")
