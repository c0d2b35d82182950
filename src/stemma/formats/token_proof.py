"""Proving an export on disk: its data file, receipts and manifest, read and handed to `core/proof.py`.

`tests/formats/test_token_export.py` changes files and sees each change found.
"""

from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path

import msgspec

from stemma.core.proof import Checked, WrittenRow, prove
from stemma.core.receipts import Manifest, RowLine, from_line
from stemma.core.verify import Finding
from stemma.errors import BadRecord, NotFound
from stemma.formats.token_export import MANIFEST, RECEIPTS
from stemma.formats.token_files import read_rows
from stemma.formats.token_presets import token_preset


def manifest_of(path: Path) -> Path | None:
    """The manifest of an export, given its folder or its data file; None if there is none."""
    found = (path if path.is_dir() else path.parent) / MANIFEST
    return found if found.is_file() and path.suffix != ".db" else None


def rows_with_spans(manifest_path: Path) -> Iterator[tuple[RowLine, WrittenRow]]:
    """Each row of an export that was proven, and what its receipts say of it."""
    manifest, folder = _read_manifest(manifest_path), manifest_path.parent
    preset = token_preset(manifest.preset)
    assert preset is not None
    lines = map(from_line, (folder / RECEIPTS).read_bytes().splitlines())
    told = (line for line in lines if isinstance(line, RowLine))
    return zip(told, read_rows(folder / Path(manifest.file).name, preset), strict=True)


def prove_export(manifest_path: Path) -> tuple[Manifest, Checked]:
    """Check the export that `manifest_path` belongs to."""
    manifest = _read_manifest(manifest_path)
    preset = token_preset(manifest.preset)
    if preset is None:
        raise BadRecord(f"is of a preset {manifest.preset!r} that this stemma does not know", str(manifest_path))
    folder = manifest_path.parent
    data, receipts = folder / Path(manifest.file).name, folder / RECEIPTS
    for path in (data, receipts):
        if not path.is_file():
            raise NotFound(f"{path} is missing; the export cannot be checked without it")
    checked = prove(manifest, receipts.read_bytes().splitlines(), read_rows(data, preset))
    return manifest, _with_file(checked, data, manifest)


def _read_manifest(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise BadRecord(f"is no manifest: {problem}", str(path)) from problem


def _with_file(checked: Checked, data: Path, manifest: Manifest) -> Checked:
    """And that the file is the very one that was written, numbers beside the tokens included."""
    with open(data, "rb") as file:
        same = file_digest(file, "sha256").hexdigest() == manifest.data
    if same:
        return checked
    finding = Finding("altered", data.name, "it is not the file that the manifest was written for")
    return msgspec.structs.replace(checked, findings=[*checked.findings, finding])
