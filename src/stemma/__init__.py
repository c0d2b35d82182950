"""stemma: the message graph for LLM agents.

Edit agent context like a list. Record it like git. Train on exactly what the model saw.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stemma.core.call import Call
from stemma.core.graph import MessageGraph

if TYPE_CHECKING:
    from stemma.store import Store, open_store

__all__ = ["Call", "MessageGraph", "Store", "open_store"]

_HOMES = {"Store": "stemma.store", "open_store": "stemma.store"}
"""Names that are imported when first used: who only edits a graph waits for no database."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stemma' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
