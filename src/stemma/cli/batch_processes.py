"""How many processes a batch may have."""

import os
import sys

from stemma.cli.settings import Settings
from stemma.models.protocol import Model

MOST = 8
"""More processes than that wait for each other at the store."""


def most_processes(asked: int | None, settings: Settings, model: Model, *, budget: bool = False) -> int:
    """What was asked for, or one for each processor; one where others would not share the model, tools or budget."""
    if asked == 1 or budget or not _is_endpoint(model) or settings.section("mcp"):
        return 1
    return asked or min(MOST, len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1)


def _is_endpoint(model: Model) -> bool:
    """A script goes on from reply to reply, and a model in memory is there once; an endpoint is the same for all."""
    from stemma.models.hermes_model import HermesModel
    from stemma.models.openai_api import OpenAIModel

    return isinstance(model.model if isinstance(model, HermesModel) else model, OpenAIModel)
