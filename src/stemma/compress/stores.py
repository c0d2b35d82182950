"""Graphs of a store, compressed in place: a new line in the same graph, the old one kept as a version.

A compressed line traces back to its original (`graph.previous`, reason `compression`). What was sampled under the full
context stays with that version, so it is trained there and nowhere else: in the new line it is context. Subagents'
conversations are compressed as well. A graph is saved when it is done, and what was done to it stands in its metadata,
so the same run once more asks for nothing again. `tests/compress/test_stores.py` proves it.

    S U a t a t a     →     S' U Σ a     a version: S U a t a t a, with all its calls
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stemma.compress.apply import Compressed
from stemma.compress.journal import Journal, Remembering
from stemma.compress.metrics import RowMetrics
from stemma.compress.report import Forecasts
from stemma.compress.run import Run
from stemma.compress.stream import Job, compressing, counting, job
from stemma.compress.summary import Summarizer
from stemma.core.graph import MessageGraph
from stemma.formats.export import compact_json, write_whole
from stemma.formats.files import Sample
from stemma.formats.training import RESERVED
from stemma.store import Store

REASON = "compression"
_KEY = "compression"


class Member(msgspec.Struct, frozen=True):
    """A conversation of a named graph: its own, or one of a subagent below it."""

    name: str
    number: int
    """The how-manyeth named graph."""
    below: int
    """The how-manyeth conversation of that graph."""
    last: bool
    """Whether the graph can be saved when this one is done."""
    top: MessageGraph
    graph: MessageGraph
