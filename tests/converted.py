"""Presets' conversions without what the exporter notes beside each record."""

from collections.abc import Callable
from typing import Any


def record_of(convert: Callable[..., list[Any]]) -> Callable[..., dict[str, Any]]:
    """The one record that a conversion makes of a row."""

    def one(*args: Any) -> dict[str, Any]:
        (written,) = convert(*args)
        return written.record

    return one


def records_of(convert: Callable[..., list[Any]]) -> Callable[..., list[dict[str, Any]]]:
    """All records that a conversion makes of a row."""
    return lambda *args: [written.record for written in convert(*args)]
