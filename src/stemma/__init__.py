"""stemma: the message graph for LLM agents.

Edit agent context like a list. Record it like git. Train on exactly what the model saw.
"""

from stemma.core.call import Call
from stemma.core.graph import MessageGraph

__all__ = ["Call", "MessageGraph"]
