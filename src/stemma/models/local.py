"""A model in this process: any GGUF file, by llama.cpp.

    model = LocalModel("model.gguf")              any model that can hold a format by itself
    model = LocalModel("tiny.gguf", tight=True)   a very small one: see `grammar`

`token_model` says how it is asked. Needs the extra: `pip install 'stemmata[local]'`.
`tests/models/test_local.py` runs it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stemma.models.local_engine import Engine
from stemma.models.token_model import TokenModel


class LocalModel(TokenModel):
    """A GGUF model."""

    def __init__(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        context_window: int = 4096,
        threads: int = 2,
        tight: bool = False,
        chat_template: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """A model; nothing is loaded before the first question.

        tight: keep a very small model to short replies, required parameters and one round of tools a question
        chat_template: another than the file's own
        params: sampling parameters as llama.cpp takes them; a request's own stand above them
        """
        super().__init__(
            name or Path(path).stem,
            Engine(Path(path), context_window, threads, chat_template),
            context_window=context_window,
            tight=tight,
            cost=0.0,
            params=params,
        )
