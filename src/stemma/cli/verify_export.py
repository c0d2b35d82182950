"""`stemma verify` on an export of tokens: the proof, and the level it reaches.

    L0  text only         what the text formats give: the messages, not what the engine made of them
    L1  wire              the bytes of requests and replies; stemma does not keep them
    L2  token ids         prompts, samples and logprobs are, id for id, what was captured
    L3  recomputed        logprobs are what the model gives again, for as many rows as one asks; `models/rescoring.py`

`tests/cli/test_export_tokens.py` runs it on sound and changed exports.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from stemma.cli.screen import Screen, pad

if TYPE_CHECKING:
    from stemma.core.proof import Checked, WrittenRow
    from stemma.core.receipts import Manifest
    from stemma.models.local_engine import Engine
    from stemma.models.rescoring import Difference


def verify_export(manifest_path: Path, *, recompute: int, gguf: Path | None, json: bool) -> None:
    """Prove an export; exits with 2 if it is not what it says."""
    from stemma.formats.token_proof import prove_export

    manifest, checked = prove_export(manifest_path)
    again = _recomputed(manifest_path, recompute, gguf) if recompute and not checked.findings else None
    try:
        if json:
            _print_json(manifest_path, manifest, checked, again)
        elif manifest is None:
            _print_findings(Screen(), checked)
        else:
            _print(manifest_path, manifest, checked, again)
    finally:
        if checked.findings:
            raise typer.Exit(2)


def _recomputed(manifest_path: Path, rows: int, gguf: Path | None) -> "Difference":
    """The logprobs of some rows, spread over the export, by the model itself."""
    from asyncio import run

    from stemma.cli.choosing import embedded_model
    from stemma.models.local_engine import Engine
    from stemma.models.rescoring import difference

    some = _spread(manifest_path, rows)
    longest = max((len(row.ids) // 4 for row in some), default=0)
    engine = Engine(gguf or embedded_model(), longest + 8, threads=2, chat_template=None)
    return difference(*run(_both(engine, some)))


def _spread(manifest_path: Path, rows: int) -> "list[WrittenRow]":
    from stemma.formats.token_proof import rows_of_export

    known = [row for row in rows_of_export(manifest_path) if row.logprobs is not None]
    return known[:: max(1, len(known) // rows)][:rows]


async def _both(engine: "Engine", some: "list[WrittenRow]") -> tuple[list[float], list[float]]:
    from stemma.core.call import unpack_ids, unpack_logprobs
    from stemma.core.proof import IGNORED
    from stemma.models.rescoring import rescore

    captured: list[float] = []
    again: list[float] = []
    try:
        for row in some:
            places = [place for place, label in enumerate(unpack_ids(row.labels)) if label != IGNORED]
            logprobs = unpack_logprobs(row.logprobs or b"")
            captured += [logprobs[place] for place in places]
            again += await rescore(engine, unpack_ids(row.ids).tolist(), places)
    finally:
        await engine.close()
    return captured, again


def _print_json(path: Path, manifest: "Manifest | None", checked: "Checked", again: "Difference | None") -> None:
    level = {"L0": checked.excluded.get("no tokens", 0), "L2": checked.trained - checked.off_policy}
    Screen().json(
        {
            "export": str(path.parent / manifest.file) if manifest else str(path),
            "sound": not checked.findings,
            "calls_by_level": level,
            "root": manifest.root if manifest else None,
            "checked": msgspec.to_builtins(checked),
            "breaks": manifest.breaks if manifest else {},
            "logprobs": manifest.logprobs if manifest else {},
            "recomputed": None if again is None else msgspec.to_builtins(again),
        }
    )


def _print(path: Path, manifest: "Manifest", checked: "Checked", again: "Difference | None") -> None:
    screen = Screen()
    screen.line(
        (str(path.parent / manifest.file), "bold"),
        f": checked {checked.rows:,} rows, {checked.tokens:,} tokens, {checked.trained_tokens:,} of them trained",
    )
    screen.line(("  calls  ", "dim"), f"{checked.trained:,} of {checked.calls:,} trained, each exactly once")
    for reason, count in sorted(checked.excluded.items()):
        screen.line(("  left out  ", "yellow"), f"{count:,} × {reason}")
    if checked.forced_tokens:
        screen.line(("  forced  ", "yellow"), f"{checked.forced_tokens:,} sampled tokens, listed and not trained")
    for cause, count in sorted(manifest.breaks.items()):
        screen.line(("  break  ", "cyan"), f"{count:,} × {cause}")
    _print_levels(screen, checked, again)
    _print_findings(screen, checked)
    if not checked.findings:
        screen.line(("proven", "green"), f": root {manifest.root}")


def _print_findings(screen: Screen, checked: "Checked") -> None:
    width = max((len(finding.kind) for finding in checked.findings), default=0)
    for finding in checked.findings:
        screen.line((pad(finding.kind, width), "red"), f"  {finding.subject}: {finding.detail}")
    if checked.findings:
        screen.line((f"{len(checked.findings)} found", "bold red"))


def _print_levels(screen: Screen, checked: "Checked", again: "Difference | None") -> None:
    text_only, exact = checked.excluded.get("no tokens", 0), checked.trained - checked.off_policy
    screen.line(("  L0 text only   ", "dim"), f"{text_only:,} calls, none of them trained")
    screen.line(("  L1 wire        ", "dim"), "not kept")
    screen.line(("  L2 token ids   ", "dim"), f"{exact:,} calls", *_off_policy(checked))
    screen.line(("  L3 recomputed  ", "dim"), _told(again))


def _told(again: "Difference | None") -> str:
    from stemma.models.rescoring import NOISE

    if again is None:
        return "not done; nothing here says that the engine told the truth (--recompute K asks the model again)"
    apart = f"mean difference {again.mean:.4f}, 99% within {again.p99:.4f}, largest {again.largest:.4f}"
    return f"{again.tokens:,} tokens: {apart}; batch shapes alone make a mean of about {NOISE}"


def _off_policy(checked: "Checked") -> list[tuple[str, str]]:
    said = {
        "more are distilled, and off-policy": checked.off_policy,
        "were sampled under a constraint, penalty or bias, and are marked so": checked.not_free,
    }
    return [(f"; {count:,} {what}", "yellow") for what, count in said.items() if count]
