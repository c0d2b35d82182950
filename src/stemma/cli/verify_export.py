"""`stemma verify` on an export of tokens: the proof, and the level it reaches.

    L0  text only         what the text formats give: the messages, not what the engine made of them
    L1  wire              the bytes of requests and replies; stemma does not keep them
    L2  token ids         prompts, samples and logprobs are, id for id, what was captured
    L3  recomputed        logprobs are what the model gives again; not done here

`tests/cli/test_export_tokens.py` runs it on sound and changed exports.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from stemma.cli.screen import Screen, pad

if TYPE_CHECKING:
    from stemma.core.proof import Checked
    from stemma.core.receipts import Manifest


def verify_export(manifest_path: Path, *, json: bool) -> None:
    """Prove an export; exits with 2 if it is not what it says."""
    from stemma.formats.token_proof import prove_export

    manifest, checked = prove_export(manifest_path)
    try:
        _print_json(manifest_path, manifest, checked) if json else _print(manifest_path, manifest, checked)
    finally:
        if checked.findings:
            raise typer.Exit(2)


def _print_json(path: Path, manifest: "Manifest", checked: "Checked") -> None:
    level = {"L0": checked.excluded.get("no tokens", 0), "L2": checked.trained - checked.off_policy}
    Screen().json(
        {
            "export": str(path.parent / manifest.file),
            "sound": not checked.findings,
            "calls_by_level": level,
            "root": manifest.root,
            "checked": msgspec.to_builtins(checked),
            "breaks": manifest.breaks,
        }
    )


def _print(path: Path, manifest: "Manifest", checked: "Checked") -> None:
    screen = Screen()
    screen.line(
        (str(path.parent / manifest.file), "bold"),
        f": checked {checked.rows:,} rows, {checked.tokens:,} tokens, {checked.trained_tokens:,} of them trained",
    )
    screen.line(("  calls  ", "dim"), f"{checked.trained:,} of {checked.calls:,} trained, each exactly once")
    for reason, count in sorted(checked.excluded.items()):
        screen.line(("  left out  ", "yellow"), f"{count:,} × {reason}")
    for cause, count in sorted(manifest.breaks.items()):
        screen.line(("  break  ", "cyan"), f"{count:,} × {cause}")
    _print_levels(screen, checked)
    width = max((len(finding.kind) for finding in checked.findings), default=0)
    for finding in checked.findings:
        screen.line((pad(finding.kind, width), "red"), f"  {finding.subject}: {finding.detail}")
    if checked.findings:
        screen.line((f"{len(checked.findings)} found", "bold red"))
    else:
        screen.line(("proven", "green"), f": root {manifest.root}")


def _print_levels(screen: Screen, checked: "Checked") -> None:
    text_only, exact = checked.excluded.get("no tokens", 0), checked.trained - checked.off_policy
    screen.line(("  L0 text only   ", "dim"), f"{text_only:,} calls, none of them trained")
    screen.line(("  L1 wire        ", "dim"), "not kept")
    screen.line(("  L2 token ids   ", "dim"), f"{exact:,} calls", *_off_policy(checked))
    screen.line(("  L3 recomputed  ", "dim"), "not done: nothing here says that the engine told the truth")


def _off_policy(checked: "Checked") -> list[tuple[str, str]]:
    return [(f"; {checked.off_policy:,} more are distilled, and off-policy", "yellow")] if checked.off_policy else []
