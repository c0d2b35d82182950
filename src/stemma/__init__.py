"""stemma: the message graph for LLM agents.

Edit agent context like a list. Record it like git. Train on exactly what the model saw.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stemma.core.call import Call
from stemma.core.graph import MessageGraph

if TYPE_CHECKING:
    from stemma.formats.files import load_trajectories, save_trajectory
    from stemma.formats.from_hermes import from_trajectory
    from stemma.formats.hermes import to_trajectory
    from stemma.store import Store, open_store

__all__ = [
    "Call",
    "MessageGraph",
    "Store",
    "from_trajectory",
    "load_trajectories",
    "open_store",
    "save_trajectory",
    "to_trajectory",
]

_HOMES = {
    "Store": "stemma.store",
    "from_trajectory": "stemma.formats.from_hermes",
    "load_trajectories": "stemma.formats.files",
    "open_store": "stemma.store",
    "save_trajectory": "stemma.formats.files",
    "to_trajectory": "stemma.formats.hermes",
}
"""Names that are imported when first used: who only edits a graph waits for no database."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stemma' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
