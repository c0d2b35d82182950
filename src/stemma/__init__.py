"""stemma: the message graph for LLM agents.

Edit agent context like a list. Record it like git. Train on exactly what the model saw.
"""

from stemma.core.call import Call
from stemma.core.graph import MessageGraph
from stemma.store import Store, open_store

__all__ = ["Call", "MessageGraph", "Store", "open_store"]
