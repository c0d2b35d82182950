"""The embedded model for tests: the real one, from the user's cache, fetched there if need be."""

import os
from functools import cache
from pathlib import Path

import pytest

from stemma.cli.choosing import embedded_model
from stemma.models.fetching import SMOLLM2, NotFetched, fetch
from stemma.models.local import LocalModel


@cache
def gguf() -> Path | str:
    """The model's file, or why there is none."""
    try:
        return fetch(SMOLLM2, embedded_model().parent, os.environ)
    except NotFetched as problem:
        return str(problem)


def smollm2(**settings) -> LocalModel:
    """SmolLM2; the test is skipped where it cannot be had."""
    pytest.importorskip("xllamacpp", reason="needs llama.cpp: pip install 'stemmata[local]'")
    path = gguf()
    if isinstance(path, str):
        pytest.skip(path)
    return LocalModel(path, **{"tight": True, **settings})
