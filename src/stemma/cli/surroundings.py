"""What this machine has of what stemma can use: sandbox, extras, store, embedded model. `tests/cli/test_doctor.py`."""

import os
from importlib.util import find_spec
from pathlib import Path

from stemma.cli.choosing import embedded_model
from stemma.cli.settings import Settings
from stemma.errors import StemmaError
from stemma.models.doctor import Finding

EXTRAS = {
    "columns": ("pyarrow",),
    "local": ("xllamacpp",),
    "mcp": ("mcp",),
    "tokens": ("jinja2", "tokenizers"),
    "zstd": ("zstandard",),
}
"""The extras of this package, and what each brings."""


async def look_around(settings: Settings) -> list[Finding]:
    """One finding for each."""
    extras = [_extra(name, packages) for name, packages in EXTRAS.items()]
    return [await _sandbox(settings), _store(Path(settings.get("store"))), _embedded(), *extras]


async def _sandbox(settings: Settings) -> Finding:
    """Whether a command really runs behind the fence: installed is not enough where namespaces are forbidden."""
    from stemma.tools.sandbox import choose_sandbox
    from stemma.tools.workspace import Workspace

    said = settings.section("sandbox")
    try:
        fence = choose_sandbox(said["kind"], image=said["image"], network=said["network"])
        await Workspace(sandbox=fence).try_sandbox()
    except (StemmaError, OSError) as problem:
        return Finding("sandbox", "no", str(problem))
    return (
        Finding("sandbox", "no", "none: commands run unfenced")
        if fence.name == "none"
        else Finding("sandbox", "yes", fence.name)
    )


def _store(path: Path) -> Finding:
    """Whether conversations can be kept there."""
    from stemma.store import open_store

    if not path.exists():
        folder = next(place for place in path.absolute().parents if place.exists())
        free = folder.is_dir() and os.access(folder, os.W_OK)
        return Finding("store", "yes" if free else "no", f"{path}, not there yet" if free else f"{folder} is read-only")
    try:
        with open_store(path, create=False) as store:
            graphs = store.counts()
    except (StemmaError, OSError) as problem:
        return Finding("store", "no", str(problem))
    held = ", ".join(f"{count:,} {what}" for what, count in graphs.items())
    writable = os.access(path, os.W_OK)
    return Finding("store", "yes" if writable else "no", f"{path}: {held}" if writable else f"{path} is read-only")


def _embedded() -> Finding:
    place = embedded_model()
    return (
        Finding("embedded model", "yes", str(place))
        if place.is_file()
        else Finding("embedded model", "no", "stemma models get")
    )


def _extra(name: str, packages: tuple[str, ...]) -> Finding:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        return Finding(f"extra {name}", "no", f"pip install 'stemmata[{name}]'")
    return Finding(f"extra {name}", "yes", ", ".join(packages))
