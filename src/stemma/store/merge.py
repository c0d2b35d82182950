"""Taking one store into another.

A graph whose name is free here keeps it; one that is here already is left; one whose name holds another
conversation comes in as `name~` and the first eight digits of its fingerprint (more, if that is taken too), so that
merging again finds it.
Each graph is one transaction: an interrupted merge is finished by running it again.
"""

from collections.abc import Mapping
from typing import Any

from stemma.core.fingerprint import fingerprint
from stemma.core.graph import MessageGraph
from stemma.core.names import LONGEST
from stemma.errors import NotFound
from stemma.store.protocol import MergeReport, Store


def merge(into: Store, source: Store) -> MergeReport:
    """Take in every run and named graph of `source`."""
    report = MergeReport([], [], {})
    known_runs = {run.name for run in into.runs()}
    for run in source.runs():
        if run.name not in known_runs:
            into.save_run(run.name, run.metadata)
    for info in source.graphs():
        _merge_graph(into, source.load(info.name), info.name, info.run, info.metadata, report)
    return report


def _merge_graph(
    into: Store, graph: MessageGraph, name: str, run: str | None, metadata: Mapping[str, Any], report: MergeReport
) -> None:
    mark = fingerprint(graph)
    targets = [name, *(f"{name[: LONGEST - digits - 1]}~{mark.hex()[:digits]}" for digits in range(8, 65, 8))]
    target = next((one for one in targets if _fingerprint_of(into, one) in (None, mark)), targets[-1])
    if _fingerprint_of(into, target) == mark:
        report.same.append(target)
        return
    into.save(graph, target, run=run, metadata=metadata)
    if target != name:
        report.renamed[name] = target
    report.added.append(target)


def _fingerprint_of(store: Store, name: str) -> bytes | None:
    try:
        return fingerprint(store.load(name))
    except NotFound:
        return None
