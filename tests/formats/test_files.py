"""Trajectories are saved as the format says and read back from whatever they were packed in."""

import gzip
import json
import pickle
import subprocess
import sys
import threading
import tracemalloc
from datetime import datetime

import pytest

from stemma.errors import BadRecord, NotFound, NotWritten
from stemma.formats.files import (
    COMPLETED_FILE,
    FAILED_FILE,
    TrajectoryFile,
    load_trajectories,
    save_trajectory,
)

TURNS = [{"from": "human", "value": "Hi 你好"}, {"from": "gpt", "value": "<think>\n</think>\nHello."}]


def at_half_past():
    return datetime(2026, 3, 30, 14, 30)


def numbers(path, **options):
    return [entry["n"] for entry in load_trajectories(path, **options)]


def write(path, *numbers_, pack=bytes):
    path.write_bytes(pack(b"".join(b'{"n": %d}\n' % n for n in numbers_)))
    return path


def zstd(content):
    zstandard = pytest.importorskip("zstandard", reason="needs the package zstandard")
    return zstandard.ZstdCompressor().compress(content)


def test_a_saved_line_is_the_formats_own_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_trajectory(TURNS, "anthropic/claude", True, now=at_half_past)
    assert (tmp_path / "trajectory_samples.jsonl").read_text("utf-8") == (
        '{"conversations": [{"from": "human", "value": "Hi 你好"},'
        ' {"from": "gpt", "value": "<think>\\n</think>\\nHello."}],'
        ' "timestamp": "2026-03-30T14:30:00.000000", "model": "anthropic/claude", "completed": true}\n'
    )


def test_completed_and_failed_go_to_their_own_files_or_to_the_one_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_trajectory(TURNS, "m", True)
    save_trajectory(TURNS, "m", False)
    save_trajectory(TURNS, "m", False, "mine.jsonl")
    save_trajectory(TURNS, "m", True, filename=tmp_path / "mine.jsonl")
    assert [e["completed"] for e in load_trajectories("trajectory_samples.jsonl")] == [True]
    assert [e["completed"] for e in load_trajectories("failed_trajectories.jsonl")] == [False]
    assert [e["completed"] for e in load_trajectories("mine.jsonl")] == [False, True]


def test_the_time_is_local_with_microseconds(tmp_path):
    before = datetime.now()
    save_trajectory(TURNS, "m", True, tmp_path / "a.jsonl")
    (entry,) = load_trajectories(tmp_path / "a.jsonl")
    assert before <= datetime.fromisoformat(entry["timestamp"]) <= datetime.now()
    assert len(entry["timestamp"]) == len("2026-03-30T14:22:31.456789")


def test_a_save_that_fails_is_loud(tmp_path):
    with pytest.raises(NotWritten, match="Is a directory"):
        save_trajectory(TURNS, "m", True, tmp_path)


@pytest.mark.parametrize(
    ("name", "pack"), [("a.jsonl", bytes), ("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstd), ("a.log", bytes)]
)
def test_each_packing_reads_the_same(tmp_path, name, pack):
    path = write(tmp_path / name, *range(50_000), pack=pack)
    assert numbers(path) == list(range(50_000))


@pytest.mark.parametrize(("name", "pack"), [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstd)])
def test_packed_files_joined_by_cat_read_as_one(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(b'{"n": 1}\n') + pack(b'{"n": 2}\n{"n"') + pack(b": 3}"))
    assert numbers(tmp_path / name) == [1, 2, 3]


@pytest.mark.parametrize(("name", "pack"), [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstd)])
def test_a_packed_file_that_is_cut_off_or_damaged_is_an_error_never_a_shorter_file(tmp_path, name, pack):
    packed = pack(b'{"n": 1}\n' * 1000)
    for content in (packed[:-3], packed[:10], packed + b"rubbish"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadRecord, match="cut off or damaged"):
            list(load_trajectories(tmp_path / name))
    (tmp_path / name).write_bytes(packed[:12] + b"\xff\xff\xff\xff" + packed[16:])
    with pytest.raises(BadRecord):
        list(load_trajectories(tmp_path / name))


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_are_no_matter(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\r\n\r\n  \n{"n": 2}\r\n\n{"n": 3}')
    assert numbers(path) == [1, 2, 3]
    path.write_bytes(b"")
    assert numbers(path) == []


BAD_LINES = {
    b'{"n": 2': "truncated",
    b"[1, 2]": "is of type list, not an object",
    b'{"n": NaN}': "is not JSON",
    b'{"n": 1e999}': "is not JSON",
    b'{"n": "\\ud800", "m": 1e999}': "is not JSON",
    b'{"n": "\xff"}': "is not JSON",
    b'{"n": 1} {"n": 2}': "is not JSON",
    b"[" * 200_000: "nested too deeply",
}


@pytest.mark.parametrize("bad", BAD_LINES, ids=lambda line: line[:12].decode("latin-1"))
def test_a_bad_record_is_named_by_file_and_line(tmp_path, bad):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n\n' + bad + b'\n{"n": 4}\n')
    entries = load_trajectories(path)
    assert next(entries) == {"n": 1}
    with pytest.raises(BadRecord, match=BAD_LINES[bad]) as caught:
        next(entries)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_reader_who_says_what_to_do_with_bad_records_reads_on(tmp_path):
    write(tmp_path / "1.jsonl", 1)
    (tmp_path / "2.jsonl").write_bytes(b'{"n": 2}\nrubbish\n{"n": 3}\n{"n": 4')
    write(tmp_path / "3.jsonl.gz", 9, pack=lambda content: gzip.compress(content)[:-3])
    write(tmp_path / "4.jsonl", 5)
    bad = []
    assert numbers(tmp_path, on_bad=bad.append) == [1, 2, 3, 9, 5]
    assert [(error.file.rpartition("/")[2], error.line) for error in bad] == [
        ("2.jsonl", 2),
        ("2.jsonl", 4),
        ("3.jsonl.gz", 2),
    ]


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path):
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"n": 1}\n')
        for _ in range(40):
            file.write(b" " * (8 << 20))
        file.write(b'\n{"n": 3}\n')
    bad = []
    assert numbers(path, on_bad=bad.append) == [1, 3]
    assert [(error.problem, error.line) for error in bad] == [("is longer than 256 MiB", 2)]


def test_reading_takes_constant_memory(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps({"n": 1, "pad": "x" * 100_000}).encode() + b"\n")
    path.write_bytes(path.read_bytes() * 400)
    tracemalloc.start()
    assert sum(numbers(path)) == 400
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_folder_is_read_in_natural_order(tmp_path):
    for n in (10, 9, 2, 1):
        write(tmp_path / f"batch_{n}.jsonl", n)
    write(tmp_path / "zuletzt.jsonl.gz", 99, pack=gzip.compress)
    (tmp_path / "statistics.json").write_text("{}")
    (tmp_path / "batch_1.jsonl.torn").write_text("{")
    (tmp_path / ".hidden.jsonl").write_text("{")
    assert numbers(tmp_path) == [1, 2, 9, 10, 99]


def test_nothing_in_a_folder_is_read_twice(tmp_path):
    write(tmp_path / "batch_0.jsonl", 1)
    write(tmp_path / "batch_001_output.jsonl.gz", 2, pack=gzip.compress)
    write(tmp_path / "other.jsonl", 3)
    write(tmp_path / "other.jsonl.gz", 3, pack=gzip.compress)
    assert numbers(tmp_path) == [1, 2, 3]
    write(tmp_path / "trajectories.jsonl", 1, 2)
    assert numbers(tmp_path) == [3, 1, 2]


def test_a_json_file_is_a_list_of_entries_or_one_entry(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"n": 1},\n {"n": 2}]')
    assert numbers(path) == [1, 2]
    path.write_text('{\n  "n": 3\n}\n')
    assert numbers(path) == [3]
    path.write_text('[{"n": 1}, 7, {"n": 2}]')
    bad = []
    assert numbers(path, on_bad=bad.append) == [1, 2]
    assert [str(error) for error in bad] == [f"{path}: item 2 is of type int, not an object"]
    path.write_text('{"n": 1}\n{"n": 2}\n')
    with pytest.raises(BadRecord, match=r"a.json: is not JSON.*name it .jsonl"):
        numbers(path)


def test_a_wrong_path_is_told_at_the_call(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.jsonl"):
        load_trajectories(tmp_path / "nowhere.jsonl")
    with pytest.raises(NotFound, match="holds no trajectory files"):
        load_trajectories(tmp_path)


def test_a_missing_package_is_reported_with_the_command_that_installs_it(tmp_path):
    script = (
        "import sys; sys.modules['zstandard'] = None\n"
        "from stemma.errors import MissingExtra\n"
        "from stemma.formats.files import load_trajectories\n"
        "try: list(load_trajectories(sys.argv[1]))\n"
        "except MissingExtra as error: print(error)\n"
    )
    (tmp_path / "a.jsonl.zst").write_bytes(b"")
    run = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "a.jsonl.zst"], capture_output=True, text=True, check=True
    )
    assert "pip install 'stemmata[zstd]'" in run.stdout


def test_a_later_turn_takes_the_place_of_the_earlier_one_and_touches_no_other_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_trajectory([{"from": "human", "value": "other"}], "m", True)
    file = TrajectoryFile()
    file.write([{"from": "human", "value": "one"}], "m", False)
    file.write([{"from": "human", "value": "one, two"}], "m", True)
    save_trajectory([{"from": "human", "value": "another"}], "m", True)
    file.write([{"from": "human", "value": "one, two, three"}], "m", True)
    saved = [entry["conversations"][0]["value"] for entry in load_trajectories(COMPLETED_FILE)]
    assert saved == ["other", "another", "one, two, three"]
    assert list(load_trajectories(FAILED_FILE)) == []


def test_appends_that_wait_while_a_line_is_taken_out_land_in_the_new_file(tmp_path):
    path = tmp_path / "t.jsonl"
    file = TrajectoryFile(path)

    def append_many():
        for i in range(60):
            save_trajectory([{"from": "human", "value": str(i)}], "m", True, path)

    others = [threading.Thread(target=append_many) for _ in range(3)]
    for thread in others:
        thread.start()
    for turn in range(60):
        file.write([{"from": "human", "value": f"turn {turn}"}], "m", True)
    for thread in others:
        thread.join()
    saved = [entry["conversations"][0]["value"] for entry in load_trajectories(path)]
    assert sorted(v for v in saved if not v.startswith("turn")) == sorted([str(i) for i in range(60)] * 3)
    assert [v for v in saved if v.startswith("turn")] == ["turn 59"]


def test_a_link_that_an_agent_left_in_the_working_folder_is_not_written_through(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "trajectory_samples.jsonl").symlink_to(mine)
    for save in (save_trajectory, TrajectoryFile().write):
        with pytest.raises(NotWritten, match=r"trajectory_samples\.jsonl: it is a symbolic link"):
            save([{"from": "gpt", "value": "evil"}], "m", True)
    save_trajectory([{"from": "gpt", "value": "asked for"}], "m", True, tmp_path / "trajectory_samples.jsonl")
    assert "evil" not in mine.read_text()
    assert "asked for" in mine.read_text()


def test_nor_is_one_in_the_place_of_a_file_that_is_made_on_the_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for ending in (".partial", ".torn"):
        (tmp_path / f"trajectory_samples.jsonl{ending}").symlink_to(mine)
    conversation = TrajectoryFile()
    for text in ("one", "two"):
        conversation.write([{"from": "gpt", "value": text}], "m", True)
    with (tmp_path / "trajectory_samples.jsonl").open("a") as file:
        file.write('{"torn')
    with pytest.raises(NotWritten):
        conversation.write([{"from": "gpt", "value": "three"}], "m", True)
    assert mine.read_text() == "mine"
