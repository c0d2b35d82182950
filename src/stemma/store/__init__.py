"""Where graphs are kept."""

import os

from stemma.store.memory import MemoryStore
from stemma.store.protocol import Store
from stemma.store.sqlite import SQLiteStore

__all__ = ["MemoryStore", "SQLiteStore", "Store", "open_store"]


def open_store(path: str | os.PathLike[str], *, create: bool = True, wait: float = 30.0) -> Store:
    """The store at `path`, made if it is not there; `:memory:` is one that lives as long as you hold it.

    With `create=False` a missing file is `StoreMissing`. A write waits up to `wait` seconds for other processes
    that write the same file, then raises `StoreBusy` naming them.
    """
    if path == ":memory:":
        return MemoryStore()
    return SQLiteStore(path, create=create, wait=wait)
