"""`stemma verify` on an export of text: its proof, at level L0. `tests/cli/test_verify.py` runs it."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from stemma.cli.screen import Screen, pad

if TYPE_CHECKING:
    from stemma.formats.text_proof import TextChecked
    from stemma.formats.text_receipts import TextManifest


_MOST = 50
"""How many findings are listed."""


def verify_text(manifest: "TextManifest", folder: Path, *, json: bool) -> None:
    """Prove an export of text; exits with 2 if it is not what it says."""
    from stemma.formats.text_proof import prove_text

    checked = prove_text(manifest, folder)
    data = folder / Path(manifest.file).name
    try:
        _print_json(data, manifest, checked) if json else _print(data, manifest, checked)
    finally:
        if checked.findings:
            raise typer.Exit(2)


def _print_json(data: Path, manifest: "TextManifest", checked: "TextChecked") -> None:
    about = {"export": str(data), "level": "L0", "sound": not checked.findings, "root": manifest.root}
    Screen().json(about | {"checked": msgspec.to_builtins(checked)})


def _print(data: Path, manifest: "TextManifest", checked: "TextChecked") -> None:
    screen = Screen()
    screen.line((str(data), "bold"), f": checked {checked.rows:,} rows")
    screen.line(("  replies  ", "dim"), f"{checked.trained:,} of {checked.replies:,} trained, each exactly once")
    for reason, count in sorted(checked.excluded.items()):
        screen.line(("  left out  ", "yellow"), f"{count:,} × {reason}")
    for difference, count in sorted(checked.off_policy.items()):
        screen.line(("  off-policy  ", "yellow"), f"{count:,} rows: {difference}")
    if not checked.findings:
        but = ", save for the differences above" if checked.off_policy else ""
        told = f"each trained message is the recorded one, after the recorded context{but}"
        screen.line(("  L0 text        ", "dim"), told)
    if checked.unrecorded:
        told = f"{checked.unrecorded:,} rows came from files: they are as they were written, and no more is known"
        screen.line(("  unrecorded     ", "yellow"), told)
    screen.line(("  L2 token ids   ", "dim"), "not in this format; `stemma export --for tokens` has them")
    width = max((len(finding.kind) for finding in checked.findings), default=0)
    for finding in checked.findings[:_MOST]:
        screen.line((pad(finding.kind, width), "red"), f"  {finding.subject}: {finding.detail}")
    if len(checked.findings) > _MOST:
        screen.line((f"… and {len(checked.findings) - _MOST:,} more", "red"))
    if checked.findings:
        screen.line((f"{len(checked.findings):,} found", "bold red"))
    else:
        screen.line(("proven", "green"), f": root {manifest.root}")
