import csv
import gzip
import json
import subprocess
import sys
import tracemalloc

import pytest

from stemma.batch.tables import BadTable, read_table
from stemma.errors import BadRecord

ROWS = [{"prompt": "one", "level": 1, "tags": ["a", "b"]}, {"prompt": "zwei ü", "level": 2, "tags": []}]


def test_json_lines_plain_or_packed_and_json_arrays(tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "c.json").write_text(json.dumps(ROWS))
    for name in ("a.jsonl", "b.jsonl.gz", "c.json"):
        assert list(read_table(tmp_path / name)) == ROWS, name


def test_csv_with_quotes_lines_and_a_byte_order_mark(tmp_path):
    file = tmp_path / "a.csv"
    with file.open("w", encoding="utf-8-sig", newline="") as out:
        csv.writer(out).writerows([["prompt", "level"], ['a, "b"\nc', "1"], ["ü", ""]])
    assert list(read_table(file)) == [{"prompt": 'a, "b"\nc', "level": "1"}, {"prompt": "ü", "level": ""}]


@pytest.mark.parametrize("line", ["only one", "a,b,c"])
def test_a_csv_row_with_another_number_of_fields_is_named(tmp_path, line):
    (tmp_path / "a.csv").write_text(f"prompt,level\nfine,1\n{line}\n")
    with pytest.raises(BadTable, match="row 2"):
        list(read_table(tmp_path / "a.csv"))


def test_parquet_files_and_folders_of_them_without_the_nulls_that_fill_a_table(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'stemmata[columns]'")
    from pyarrow import parquet

    (tmp_path / "many").mkdir()
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "many" / "b.parquet")
    parquet.write_table(pa.Table.from_pylist([{"prompt": "x", "level": None}]), tmp_path / "many" / "a.parquet")
    assert list(read_table(tmp_path / "many" / "b.parquet")) == ROWS
    assert list(read_table(tmp_path / "many")) == [{"prompt": "x"}, *ROWS]


def test_a_dataset_folder_as_the_datasets_library_lays_it_out(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'stemmata[columns]'")
    table = pa.Table.from_pylist(ROWS)
    for part, slice_ in enumerate((table.slice(0, 1), table.slice(1))):
        with pa.ipc.new_stream(tmp_path / f"data-0000{part}-of-00002.arrow", table.schema) as out:
            out.write_table(slice_)
    (tmp_path / "state.json").write_text("{}")
    (tmp_path / "dataset_info.json").write_text("{}")
    assert list(read_table(tmp_path)) == ROWS


def test_a_dataset_saved_by_the_datasets_library_itself(tmp_path):
    pytest.importorskip("datasets", reason="needs the datasets library: pip install datasets")
    script = "import sys, json, datasets as d; d.Dataset.from_list(json.loads(sys.argv[1])).save_to_disk(sys.argv[2])"
    quiet = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", script, json.dumps(ROWS), str(tmp_path / "saved")]
    subprocess.run(command, check=True, env=quiet, capture_output=True)
    assert list(read_table(tmp_path / "saved")) == ROWS


def test_a_folder_of_several_splits_asks_for_one(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(BadTable, match=r"several splits \(train\)"):
        read_table(tmp_path)


@pytest.mark.parametrize("name", ["none.jsonl", "rows.xlsx"])
def test_what_cannot_be_read_is_told_at_once(tmp_path, name):
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    with pytest.raises(BadTable, match=r"there is no file|rows are read from"):
        read_table(tmp_path / name)


def test_a_broken_line_is_named(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": \n')
    with pytest.raises(BadRecord, match=r"a\.jsonl:2"):
        list(read_table(file))


def test_a_file_of_any_size_costs_no_memory(tmp_path):
    file = tmp_path / "big.jsonl"
    file.write_text('{"prompt": "a"}\n' * 2_000_000)
    rows = read_table(file)
    tracemalloc.start()
    assert [next(rows) for _ in range(3)] == [{"prompt": "a"}] * 3
    assert tracemalloc.get_traced_memory()[1] < file.stat().st_size / 4
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        (
            "p.jsonl",
            '{"prompt": "a"}\n{"prompt": "b", "level": 1, "prompt": "c"}\n',
            r"p\.jsonl:2: has the key 'prompt'",
        ),
        ("p.jsonl", '{"prompt": "a", "limits": {"turns": 1, "turns": 2}}\n', r"p\.jsonl:1: has the key 'turns'"),
        ("p.jsonl", '{"prompt": "\\ud800", "a": 1, "a": 2}\n', r"p\.jsonl:1: has the key 'a'"),
        ("p.json", '[{"prompt": "a"}, {"prompt": "b", "prompt": "c"}]', r"p\.json: item 2 has the key 'prompt'"),
        ("p.json", '{"prompt": "b", "prompt": "c"}', r"p\.json: has the key 'prompt'"),
    ],
)
def test_a_key_that_stands_twice_in_a_row_is_named_with_its_row(tmp_path, name, text, place):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadRecord, match=place):
        list(read_table(tmp_path / name))


def test_a_column_that_stands_twice_is_named(tmp_path):
    (tmp_path / "p.csv").write_text("prompt,level,prompt\na,1,b\n")
    with pytest.raises(BadTable, match="'prompt' is there 2 times"):
        list(read_table(tmp_path / "p.csv"))
