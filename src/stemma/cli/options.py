"""Options that commands share, and how a store is opened for reading."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stemma.store import Store

DEFAULT_STORE = "stemma.db"

StoreOption = Annotated[
    str, typer.Option("--store", "-s", envvar="STEMMA_STORE", metavar="PATH", help="The store to read.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, and nothing else, to standard output.")]


@contextmanager
def reading(path: str) -> Iterator["Store"]:
    """The store at `path`, which must be there."""
    from stemma.store import open_store

    with open_store(path, create=False) as store:
        yield store
