"""`stemma verify` on an export of text: level L0, and no more. `tests/cli/test_verify.py` runs it.

A text format has the messages, not what the engine made of them, so there is nothing to prove but that the file is the
one its report tells of: as many rows as were written.
"""

from pathlib import Path
from typing import Any

import typer

from stemma.cli.screen import Screen
from stemma.formats.jsonl import from_line

REPORT = "report.json"


def report_of(path: Path) -> Path | None:
    """The report of a text export, given its folder or its data file; None if there is none."""
    if path.suffix == ".db":
        return None
    found = (path if path.is_dir() else path.parent) / REPORT
    return found if found.is_file() else None


def verify_text(report_path: Path, *, json: bool) -> None:
    """Say what can be said; exits with 2 if the rows are not those that were written."""
    report = from_line(report_path.read_bytes())
    data = report_path.parent / Path(str(report.get("file"))).name
    rows = _rows(data)
    sound = rows == report.get("written")
    _print_json(data, report, rows, sound) if json else _print(data, report, rows, sound)
    if not sound:
        raise typer.Exit(2)


def _rows(data: Path) -> int:
    if data.suffix == ".parquet":
        from pyarrow.parquet import ParquetFile

        with ParquetFile(data) as file:
            return int(file.metadata.num_rows)
    with data.open("rb") as file:
        return sum(1 for _ in file)


def _print_json(data: Path, report: dict[str, Any], rows: int, sound: bool) -> None:
    Screen().json({"export": str(data), "level": "L0", "rows": rows, "written": report.get("written"), "sound": sound})


def _print(data: Path, report: dict[str, Any], rows: int, sound: bool) -> None:
    screen = Screen()
    screen.line((str(data), "bold"), f": {rows:,} rows, {report.get('written'):,} were written")
    screen.line(("  L0 text only   ", "dim"), "the messages, not the tokens that the engine made of them")
    screen.line(("  L2 token ids   ", "dim"), "not in this format; `stemma export --for tokens` has them")
    if not sound:
        screen.line(("altered", "red"), "  the file has another number of rows than its report")
