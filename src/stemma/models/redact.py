"""What is secret stays out of the errors of a model, also when its endpoint echoes it.

`stemma/redact.py` says what is replaced. `tests/models/test_redact.py` proves it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from stemma.models.errors import ModelError
from stemma.redact import Redactor as PlainRedactor

BODY = 2_000
"""How many characters of a body an error keeps."""


class Redactor(PlainRedactor):
    """Replaces the secrets it was given, in errors too."""

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
