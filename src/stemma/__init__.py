"""stemma: the message graph for LLM agents.

Edit agent context like a list. Record it like git. Train on exactly what the model saw.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stemma.core.call import Call
from stemma.core.graph import MessageGraph

if TYPE_CHECKING:
    from stemma.agent.agent import Agent, Conversation
    from stemma.agent.limits import Limits
    from stemma.batch.batch import run_batch
    from stemma.formats.files import load_trajectories, save_trajectory
    from stemma.formats.from_hermes import from_trajectory
    from stemma.formats.hermes import to_trajectory
    from stemma.models.local import LocalModel
    from stemma.models.openai_api import OpenAIModel
    from stemma.models.replay import ReplayModel
    from stemma.models.scripted import ScriptedModel
    from stemma.store import Store, open_store

__all__ = [
    "Agent",
    "Call",
    "Conversation",
    "Limits",
    "LocalModel",
    "MessageGraph",
    "OpenAIModel",
    "ReplayModel",
    "ScriptedModel",
    "Store",
    "from_trajectory",
    "load_trajectories",
    "open_store",
    "run_batch",
    "save_trajectory",
    "to_trajectory",
]

_HOMES = {
    "Agent": "stemma.agent.agent",
    "Conversation": "stemma.agent.agent",
    "Limits": "stemma.agent.limits",
    "LocalModel": "stemma.models.local",
    "OpenAIModel": "stemma.models.openai_api",
    "ReplayModel": "stemma.models.replay",
    "ScriptedModel": "stemma.models.scripted",
    "Store": "stemma.store",
    "from_trajectory": "stemma.formats.from_hermes",
    "load_trajectories": "stemma.formats.files",
    "open_store": "stemma.store",
    "run_batch": "stemma.batch.batch",
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
