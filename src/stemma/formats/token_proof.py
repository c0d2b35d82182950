"""Proving an export on disk: its data file, receipts and manifest, read and handed to `core/proof.py`.

`tests/formats/test_token_export.py` changes files and sees each change found.
"""

from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from typing import Any

import msgspec

from stemma.core.proof import Checked, WrittenRow, prove
from stemma.core.receipts import RECEIPTS as RECEIPTS_VERSION
from stemma.core.receipts import Manifest
from stemma.core.verify import Finding, Kind
from stemma.errors import BadRecord, NotFound
from stemma.formats.export import MANIFEST, RECEIPTS
from stemma.formats.token_files import read_rows
from stemma.formats.token_preset import TokenPreset
from stemma.formats.token_presets import token_preset


def manifest_of(path: Path) -> Path | None:
    """The manifest of an export, given its folder or its data file; None if that is no export with receipts.

    Where receipts are without it, it is the path at which it should be.
    """
    folder = path if path.is_dir() else path.parent
    if path.suffix == ".db" or not any((folder / name).is_file() for name in (MANIFEST, RECEIPTS)):
        return None
    if not path.is_dir() and path.name not in (MANIFEST, RECEIPTS, _data_name(folder / MANIFEST, path.name)):
        raise NotFound(
            f"{path} is not the data of the export in {folder}; give the folder, or the file it was written to"
        )
    return folder / MANIFEST


def _data_name(manifest: Path, default: str) -> str:
    """The data file that a manifest names; `default` if it cannot be read."""
    try:
        found = msgspec.json.decode(manifest.read_bytes(), type=dict[str, Any]).get("file")
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return default
    return found if isinstance(found, str) else default


def rows_of_export(manifest_path: Path) -> Iterator[WrittenRow]:
    """The rows of an export that was proven."""
    manifest = _read_manifest(manifest_path)
    return read_rows(manifest_path.parent / Path(manifest.file).name, _preset_of(manifest, manifest_path))


def prove_export(manifest_path: Path) -> tuple[Manifest | None, Checked]:
    """Check the export that `manifest_path` belongs to; a file that is missing or cannot be read is a finding.

    The manifest is None if that is the file.
    """
    try:
        manifest = _read_manifest(manifest_path)
        preset = _preset_of(manifest, manifest_path)
    except OSError as problem:
        return None, Checked([_unreadable(manifest_path, problem)])
    except BadRecord as problem:
        return None, Checked([Finding("damaged", manifest_path.name, problem.problem)])
    folder = manifest_path.parent
    data, receipts = folder / Path(manifest.file).name, folder / RECEIPTS
    found: list[Finding] = []
    lines = _read(receipts, found).splitlines()
    checked = prove(manifest, lines, _rows(data, preset, found))
    found += _other_file(data, manifest)
    return manifest, msgspec.structs.replace(checked, findings=[*found, *checked.findings])


def _read_manifest(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BadRecord(f"is no manifest: {problem}", str(path)) from problem


def _preset_of(manifest: Manifest, path: Path) -> TokenPreset:
    preset = token_preset(manifest.preset)
    if preset is None:
        raise BadRecord(f"is of a preset {manifest.preset!r} that this stemma does not know", str(path))
    if manifest.receipts != RECEIPTS_VERSION:
        raise BadRecord(
            f"was written by stemma {manifest.stemma}, whose receipts this version cannot check; export again",
            str(path),
        )
    return preset


def _read(path: Path, found: list[Finding]) -> bytes:
    """The content of a file; nothing, and a finding, if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as problem:
        found.append(_unreadable(path, problem))
        return b""


def _rows(data: Path, preset: TokenPreset, found: list[Finding]) -> Iterator[WrittenRow]:
    """The rows as far as they can be read, and a finding for the rest."""
    try:
        yield from read_rows(data, preset)
    except OSError as problem:
        found.append(_unreadable(data, problem))
    except BadRecord as problem:
        place = data.name if problem.line is None else f"{data.name}, line {problem.line}"
        found.append(Finding("damaged", place, problem.problem))


def _other_file(data: Path, manifest: Manifest) -> list[Finding]:
    """Whether the file is the very one that was written."""
    try:
        with open(data, "rb") as file:
            same = file_digest(file, "sha256").hexdigest() == manifest.data
    except OSError:  # `_rows` has said so
        return []
    return [] if same else [Finding("altered", data.name, "it is not the file that the manifest was written for")]


def _unreadable(path: Path, problem: OSError) -> Finding:
    kind: Kind = "missing" if isinstance(problem, FileNotFoundError) else "damaged"
    return Finding(kind, path.name, f"it cannot be read: {problem.strerror or problem}")
