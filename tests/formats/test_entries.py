"""Batch entries keep every column, and every row has the same shape, so that Arrow loads them."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.errors import BadRecord
from stemma.formats.entries import Columns, ToolUse, batch_entry, columns_of, entry_metadata
from stemma.formats.files import load_trajectories
from stemma.formats.jsonl import to_line

TOOLS = ["terminal", "read_file", "write_file"]
ZERO = {"count": 0, "success": 0, "failure": 0}


def entry(
    *, prompt_index=42, text="Hi", metadata=None, columns=None, toolsets_used=(), tools_used=None, known_tools=TOOLS
):
    return batch_entry(
        [{"from": "human", "value": text}],
        prompt_index=prompt_index,
        metadata=metadata or {},
        columns=columns or Columns(),
        completed=True,
        partial=False,
        api_calls=7,
        toolsets_used=toolsets_used,
        tools_used=tools_used or {},
        known_tools=known_tools,
    )


def test_an_entry_looks_as_the_format_shows_it():
    metadata = {"prompt_source": "gsm8k", "difficulty": "hard"}
    made = entry(
        metadata=metadata,
        columns=columns_of([metadata]),
        toolsets_used=["code_tools", "file_tools"],
        tools_used={"read_file": ToolUse(2, 2, 0), "terminal": ToolUse(3, 2, 1)},
    )
    assert json.dumps(made) == json.dumps(
        {
            "prompt_index": 42,
            "conversations": [{"from": "human", "value": "Hi"}],
            "metadata": {"prompt_source": "gsm8k", "difficulty": "hard"},
            "completed": True,
            "partial": False,
            "api_calls": 7,
            "toolsets_used": ["code_tools", "file_tools"],
            "tool_stats": {
                "terminal": {"count": 3, "success": 2, "failure": 1},
                "read_file": {"count": 2, "success": 2, "failure": 0},
                "write_file": ZERO,
                "unknown": ZERO,
            },
            "tool_error_counts": {"terminal": 1, "read_file": 0, "write_file": 0, "unknown": 0},
        }
    )


def test_a_tool_the_model_made_up_adds_no_column_and_is_still_counted():
    made = entry(tools_used={"bogus": ToolUse(2, 0, 2), "terminal": ToolUse(1, 1, 0), "bash": ToolUse(1, 0, 0)})
    assert list(made["tool_stats"]) == list(made["tool_error_counts"]) == [*TOOLS, "unknown"]
    assert made["tool_stats"]["unknown"] == {"count": 3, "success": 0, "failure": 2}
    assert made["tool_error_counts"]["unknown"] == 2


def test_only_columns_that_are_alike_in_all_rows_stand_by_themselves():
    rows = [
        {"s": "a", "i": 1, "f": 0.5, "b": True, "mix": 1, "nil": None, "day": "x", "big": 1, "json": "x"},
        {"s": "", "i": 2, "f": 2.0, "b": False, "mix": "1", "nil": "", "day": "2024-01-01", "big": 2**63, "json": ""},
        {"s": "3", "i": 3, "f": 1.0, "b": True, "mix": 1, "nil": "a", "day": "x", "big": 1, "json": "y", "late": 1},
    ]  # fmt: skip
    columns = columns_of(rows)
    assert columns == Columns({"s": str, "i": int, "f": float, "b": bool}, rest=True)
    for row in rows:
        metadata = entry(metadata=row, columns=columns)["metadata"]
        assert list(metadata) == ["s", "i", "f", "b", "json"]
        assert metadata["s"] == row["s"]
        assert json.loads(metadata["json"]) == {k: v for k, v in row.items() if k not in columns.plain}


@pytest.mark.parametrize(
    "text", ["2024-01-01", "2024-01-01T10", "2024-01-01 10:20:30", "2024-01-01T10:20:30+02:00", "\ud800"]
)
def test_text_that_arrow_would_change_or_refuse_never_stands_as_a_column(text):
    assert columns_of([{"a": text, "b": 1}]) == Columns({"b": int}, rest=True)


def test_metadata_that_does_not_fit_the_columns_is_refused_not_bent():
    columns = columns_of([{"level": "hard"}])
    assert not columns.rest
    for metadata, complaint in [
        ({"level": 3}, r"metadata\['level'\] is no plain str"),
        ({}, r"metadata\['level'\] is no plain str"),
        ({"level": "x", "new": 1}, "metadata has 'new'"),
        ({"level": "x", "new": float("nan")}, "metadata has 'new'"),
    ]:
        with pytest.raises(BadRecord, match=complaint):
            entry(metadata=metadata, columns=columns)
    with pytest.raises(BadRecord, match=r"metadata\['score'\] is nan"):
        entry(metadata={"score": float("nan")})


def test_another_writers_metadata_is_read_as_it_stands():
    assert entry_metadata({"metadata": {"batch_num": 1, "model": "m"}}) == {"batch_num": 1, "model": "m"}


names = st.sampled_from(["a", "b", "c", "json", "plain", "\ud800", ""])
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(st.characters())
values = (
    scalars | st.floats(allow_nan=False, allow_infinity=False) | st.lists(scalars) | st.dictionaries(names, scalars)
)


@given(st.lists(st.dictionaries(names, values), min_size=1, max_size=6))
def test_whatever_the_columns_every_row_has_one_shape_and_its_metadata_comes_back(rows):
    columns = columns_of(rows)
    made = [entry(metadata=row, columns=columns) for row in rows]
    assert [entry_metadata(json.loads(to_line(one))) for one in made] == rows
    assert len({tuple((k, type(v)) for k, v in one["metadata"].items()) for one in made}) == 1


LOADER = """
import json, sys
from datasets import disable_progress_bars, load_dataset
disable_progress_bars()
rows = load_dataset("json", data_files=sys.argv[1])["train"]
print(rows.features, file=sys.stderr)
with open(sys.argv[2], "w", encoding="utf-8") as out:
    for row in rows:
        del row["conversations"]
        out.write(json.dumps(row) + "\\n")
"""


def mixed_metadata(n):
    """Every row has `source` and `index`; every other shape first appears beyond the first 10 MB."""
    row = {"source": f"set {n % 3}", "index": n, "date": "2024-01-01", "level": 1}
    if n < 6_000:
        return row
    return (
        row
        | [
            {"level": "hard", "date": "unknown"},
            {"level": 1.5, "extra": {"nested": [1, "x", None, {"deep": n}]}},
            {"level": None, "tags": ["a", 2], "odd \ud800": "\ud800\x00", "json": '{"not": "ours"}'},
            {"level": {"a": n}, f"column {n % 50}": 2**64 - 1, "score": 0.25},
        ][n % 4]
    )


def mixed_entry(n, columns):
    late = n >= 6_000
    return entry(
        prompt_index=n,
        text=f"question {n} " + "x" * 2_000,
        metadata=mixed_metadata(n),
        columns=columns,
        toolsets_used=["web", "files"][: n % 3] if late else [],
        tools_used={"bogus" if n % 2 else "terminal": ToolUse(n % 5, n % 3, 1)} if late else {},
        known_tools=[f"tool_{i}" for i in range(10)] + TOOLS,
    )


@pytest.mark.skipif(
    not importlib.util.find_spec("datasets"), reason="needs the package datasets (pip install datasets)"
)
def test_ten_thousand_mixed_rows_load_in_datasets_and_every_rows_metadata_comes_back(tmp_path):
    columns = columns_of(mixed_metadata(n) for n in range(10_000))
    assert columns == Columns({"source": str, "index": int}, rest=True)
    written, loaded = tmp_path / "rows.jsonl", tmp_path / "loaded.jsonl"
    with written.open("wb") as file:
        for n in range(10_000):
            file.write(to_line(mixed_entry(n, columns)))
            assert n != 6_000 or file.tell() > 11 << 20
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path), "HF_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", LOADER, written, loaded], env=os.environ | offline, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
    rows = list(load_trajectories(loaded))
    assert [entry_metadata(row) for row in rows] == [mixed_metadata(n) for n in range(10_000)]
    for n, row in enumerate(rows):
        made = mixed_entry(n, columns)
        del made["conversations"]
        assert row == made
