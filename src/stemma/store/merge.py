"""Taking one store into another.

A graph whose name is free here keeps it; one that is here already is left; one whose name holds another
conversation comes in as `name~` and the first eight digits of its fingerprint (more, if that is taken too), so that
merging again finds it. Metadata of graphs and runs that are here already is put together key by key:

    here {"level": "hard"}    there {"level": "hard", "reward": 1.0}    → both: the reward is taken in
    here {"reward": 0.0}      there {"reward": 1.0}                     → a conflict, reported; here it stays 0.0,
                                                                          unless the caller prefers the other

Each graph is one transaction: an interrupted merge is finished by running it again.
`tests/store/test_merge.py` proves it.
"""

from collections.abc import Mapping
from typing import Any

from stemma.core.canonical import canonical, plain
from stemma.core.fingerprint import fingerprint
from stemma.core.graph import MessageGraph
from stemma.core.names import LONGEST
from stemma.errors import NotFound
from stemma.store.protocol import Conflict, GraphInfo, MergeReport, Prefer, Store


def merge(into: Store, source: Store, prefer: Prefer | None = None) -> MergeReport:
    """Take in every run and named graph of `source`."""
    report = MergeReport([], [], {}, [], [])
    known_runs = {run.name: run.metadata for run in into.runs()}
    for run in source.runs():
        here = known_runs.get(run.name)
        both = run.metadata if here is None else _together(here, run.metadata, f"run {run.name}", prefer, report)
        if both != here:
            into.save_run(run.name, both)
    for info in source.graphs():
        _merge_graph(into, source.load(info.name), info, prefer, report)
    return report


def _merge_graph(into: Store, graph: MessageGraph, info: GraphInfo, prefer: Prefer | None, report: MergeReport) -> None:
    mark, name = fingerprint(graph), info.name
    targets = [name, *(f"{name[: LONGEST - digits - 1]}~{mark.hex()[:digits]}" for digits in range(8, 65, 8))]
    target = next((one for one in targets if _fingerprint_of(into, one) in (None, mark)), targets[-1])
    if _fingerprint_of(into, target) == mark:
        report.same.append(target)
        here = into.metadata(target)
        both = _together(here, info.metadata, target, prefer, report)
        if both != here:
            into.save(into.load(target), target, metadata=both)
            report.updated.append(target)
        return
    into.save(graph, target, run=info.run, metadata=info.metadata)
    if target != name:
        report.renamed[name] = target
    report.added.append(target)


def _together(
    here: Mapping[str, Any], there: Mapping[str, Any], name: str, prefer: Prefer | None, report: MergeReport
) -> dict[str, Any]:
    """Both metadata in one; a key that they give different values is a conflict."""
    both = {**there, **here}
    for key in here.keys() & there.keys():
        if _is_same(here[key], there[key]):
            continue
        if prefer == "there":
            both[key] = there[key]
        elif prefer is None:
            report.conflicts.append(Conflict(name, key, here[key], there[key]))
    return both


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: `True`, `1` and `1.0` are not."""
    return canonical(plain(one)) == canonical(plain(other))


def _fingerprint_of(store: Store, name: str) -> bytes | None:
    try:
        return fingerprint(store.load(name))
    except NotFound:
        return None
