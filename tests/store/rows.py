"""What lies in a store's file, seen from beside it, through a connection of SQLite's own."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

TABLES = ("message", "line", "toolset", "call", "run", "graph", "version", "placed", "contains")


def ask(path: Path, question: str, *args: Any) -> list[tuple[Any, ...]]:
    """The rows that a question gives."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(question, args).fetchall()


def count(path: Path) -> dict[str, int]:
    """How many rows each table has."""
    return {table: ask(path, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def added(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """How many rows came to the tables that grew."""
    return {table: after[table] - before[table] for table in TABLES if after[table] != before[table]}
