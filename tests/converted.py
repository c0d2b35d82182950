"""Presets' conversions without what the exporter notes beside each record."""

from collections.abc import Callable
from typing import Any

from stemma.formats.entries import entry_metadata

ABOUT = ("id", "model", "finish_reason", "on_policy", "off_policy", "metadata")
"""The columns about a row that every record has beside those of its format."""


def record_of(convert: Callable[..., list[Any]]) -> Callable[..., dict[str, Any]]:
    """The one record that a conversion makes of a row."""

    def one(*args: Any) -> dict[str, Any]:
        (written,) = convert(*args)
        return written.record

    return one


def records_of(convert: Callable[..., list[Any]]) -> Callable[..., list[dict[str, Any]]]:
    """All records that a conversion makes of a row."""
    return lambda *args: [written.record for written in convert(*args)]


def as_converted(record: dict[str, Any]) -> dict[str, Any]:
    """A record that was written, without the columns about it."""
    return {name: value for name, value in record.items() if name not in ABOUT}


def about(record: dict[str, Any]) -> dict[str, Any]:
    """The columns about a record that was written, its metadata as they were given."""
    return {name: record[name] for name in ABOUT} | {"metadata": entry_metadata(record)}
