"""Options that commands share, and how a store is opened for reading."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stemma.store import Store

CONFIGURED = ""
"""The store that the settings name: `stemma.db` in the current folder, unless somebody says otherwise."""


def named_store(path: str) -> str:
    """The path of the store that is meant."""
    if path != CONFIGURED:
        return path
    from stemma.cli.settings import load_settings

    return str(load_settings().get("store"))


StoreOption = Annotated[
    str,
    typer.Option(
        *("--store", "-s"), metavar="PATH", callback=named_store, show_default="stemma.db", help="The store to use."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, and nothing else, to standard output.")]


@contextmanager
def reading(path: str) -> Iterator["Store"]:
    """The store at `path`, which must be there."""
    from stemma.store import open_store

    with open_store(path, create=False) as store:
        yield store
