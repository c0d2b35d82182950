"""`stemma verify`: derive every id of a store again, or prove the rows of an export.

`tests/cli/test_verify.py` runs it on sound and damaged stores, `tests/cli/test_export_tokens.py` on exports.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stemma.cli.options import CONFIGURED, JsonOption, named_store, reading
from stemma.cli.screen import Screen, pad
from stemma.cli.verify_text import verify_text

if TYPE_CHECKING:
    from stemma.core.verify import Finding
    from stemma.store import Store


def verify(
    store: Annotated[
        str,
        typer.Argument(
            metavar="PATH", callback=named_store, show_default="stemma.db", help="The store or the export to check."
        ),
    ] = CONFIGURED,
    recompute: Annotated[
        int, typer.Option(metavar="K", min=0, help="An export: compute the logprobs of K rows again.")
    ] = 0,
    gguf: Annotated[Path | None, typer.Option(help="The model to do it with; else the embedded one.")] = None,
    json: JsonOption = False,
) -> None:
    """Derive every id in a store again, or prove the rows of an export, and name all that is wrong.

    An export is checked from its own files: each trained token or message stands in the context the model was sent,
    each call is trained once or left out for a reason. Exits with 2 if anything is wrong.
    """
    from stemma.formats.token_proof import manifest_of

    if manifest := manifest_of(Path(store)):
        from stemma.formats.text_proof import text_manifest

        if text := text_manifest(manifest):
            if recompute or gguf:
                raise typer.BadParameter(f"--recompute and --gguf have no effect: {text.preset} has no logprobs")
            verify_text(text, manifest.parent, json=json)
            return
        from stemma.cli.verify_export import verify_export

        verify_export(manifest, recompute=recompute, gguf=gguf, json=json)
        return
    with reading(store) as opened:
        findings, counts = opened.verify(), _counts(opened)
    try:
        _print_json(store, findings, counts) if json else _print(store, findings, counts)
    finally:  # also when the reader of the output has gone: the code is what scripts look at
        if findings:
            raise typer.Exit(2)


def _counts(store: "Store") -> dict[str, int] | None:
    """How much there was to check; None if a damaged file cannot even say that."""
    from stemma.errors import StemmaError

    try:
        return store.counts()
    except StemmaError:
        return None


def _print_json(path: str, findings: "list[Finding]", counts: dict[str, int] | None) -> None:
    found = [{"kind": f.kind, "subject": f.subject, "detail": f.detail} for f in findings]
    Screen().json({"store": path, "sound": not findings, "checked": counts, "findings": found})


def _print(path: str, findings: "list[Finding]", counts: dict[str, int] | None) -> None:
    screen = Screen()
    checked = ", ".join(f"{n:,} {what}" for what, n in counts.items()) if counts else "what could be read"
    screen.line((path, "bold"), f": checked {checked}")
    width = max((len(f.kind) for f in findings), default=0)
    for finding in sorted(findings, key=lambda f: f.kind):
        screen.line((pad(finding.kind, width), "red"), f"  {finding.subject}: {finding.detail}")
    kinds = Counter(f.kind for f in findings)
    if kinds:
        screen.line((f"{len(findings)} found: ", "bold red"), ", ".join(f"{n} {kind}" for kind, n in kinds.items()))
    else:
        screen.line(("all ids are right", "green"))
