"""A conversation that was laid out elsewhere gets its rows. `tests/store/test_fresh.py` proves it."""

from typing import Any

from stemma.core.fresh import Fresh
from stemma.store.lines import insert_line, write_messages, write_runs
from stemma.store.records import Home, insert_graph, insert_rows, run_of, seal_graph, write_toolset
from stemma.store.writer import Transaction


def write_fresh(transaction: Transaction, fresh: Fresh, name: str, run: str | None, metadata: bytes) -> None:
    """A conversation under a name that is free."""
    numbers = write_messages(transaction, fresh.messages)
    whole = (None, 0, 0, write_runs(numbers), len(numbers), 0, fresh.tip)
    line = insert_line(transaction, whole) if numbers else None
    [row] = transaction.numbers("graph", 1)
    run_row = None if run is None else run_of(transaction, run)
    home = Home(row, calls=len(fresh.calls), calls_hash=fresh.calls_hash)
    seal = seal_graph(name, run_row, metadata, fresh.tip, home)
    insert_graph(transaction.db, (row, name, run_row, line, metadata, seal))
    if fresh.calls:
        insert_rows(transaction.db, _calls(transaction, fresh, row))


def _calls(transaction: Transaction, fresh: Fresh, graph: int) -> dict[str, list[tuple[Any, ...]]]:
    toolset = None if fresh.tools is None else write_toolset(transaction, fresh.tools)
    numbers = transaction.numbers("call", len(fresh.calls))
    calls = [
        (n, *one[:4], toolset, one.body, None, 0, None, None, None) for n, one in zip(numbers, fresh.calls, strict=True)
    ]
    placed = [(graph, i, n, one.at, None) for i, (n, one) in enumerate(zip(numbers, fresh.calls, strict=True))]
    return {"call": calls, "placed": placed}
