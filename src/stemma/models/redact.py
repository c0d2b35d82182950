"""What is secret stays out of errors, logs and records, also when an endpoint echoes it.

Exact values are replaced, never patterns: a rule that guesses what looks like a key misses some vendors and mangles
what users wrote. The forms a server may echo are known too: as it is, inside JSON, inside a URL, and in base64. A
value under eight characters (`EMPTY`, `none`) is a placeholder: it protects nothing, and it is also a word.
`tests/models/test_redact.py` proves it.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from stemma.models.errors import ModelError

MASK = "[secret]"
SHORTEST = 8
BODY = 2_000
"""How many characters of a body an error keeps."""


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

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Cleans every `ModelError` that leaves the block, where it stands, and cuts its body to what is read."""
        try:
            yield
        except ModelError as problem:
            self._clean(problem)
            raise

    def _clean(self, problem: ModelError) -> None:
        problem.args = tuple(self.value(argument) for argument in problem.args)
        # Cleaned before it is cut: a cut through a secret would leave a half that no longer matches.
        problem.body = self.text(problem.body)[:BODY]


def _forms(secret: str) -> set[str]:
    encoded = base64.b64encode(secret.encode("utf-8", "surrogatepass")).decode()
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {secret, quote(secret, safe="", errors="replace"), encoded, *escaped}
