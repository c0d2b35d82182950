"""An append is whole or absent, whatever happens to the process, the disk or the neighbours."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.errors import BadRecord, NotWritten
from stemma.formats.files import load_trajectories
from stemma.formats.jsonl import append, from_line, to_line

WRITER = """
import sys
from stemma.formats.jsonl import append
path, name, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for n in range(count):
    append(path, {"name": name, "n": n, "pad": "é" * size})
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
"""

FULL_DISK = """
import resource, sys
from stemma.errors import NotWritten
from stemma.formats.jsonl import append
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for n in range(100):
    try:
        append(sys.argv[1], {"n": n, "pad": "x" * 700})
    except NotWritten as error:
        print(error)
        break
    print(n, flush=True)
"""


def writer(path, name, *, count, size):
    command = [sys.executable, "-c", WRITER, str(path), name, str(count), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def torn(path):
    return Path(f"{path}.torn")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters()), json_values))
def test_any_record_comes_back_as_it_went_in_from_one_line_of_valid_utf8(record):
    line = to_line(record)
    assert line.count(b"\n") == 1
    line.decode("utf-8")
    assert from_line(line) == record


@pytest.mark.parametrize("text", ["\ud800", "a\udfffz", "\udc00\ud800", "\x00", "\u2028\u0085", "\ufeff", "😀\ud83d"])
def test_text_that_is_hard_to_keep_survives(tmp_path, text):
    append(tmp_path / "a.jsonl", {text: text})
    assert list(load_trajectories(tmp_path / "a.jsonl")) == [{text: text}]
    assert json.loads((tmp_path / "a.jsonl").read_text("utf-8")) == {text: text}


def test_text_is_written_readably_as_the_format_shows_it(tmp_path):
    append(tmp_path / "a.jsonl", {"value": "Grüße 你好", "n": [1, 2]})
    assert (tmp_path / "a.jsonl").read_text("utf-8") == '{"value": "Grüße 你好", "n": [1, 2]}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1: 2}, object(), 2**70])
def test_what_json_cannot_hold_is_refused_with_its_place_and_nothing_is_written(tmp_path, value):
    with pytest.raises(BadRecord, match=r"record\['deep'\]\[0\]"):
        append(tmp_path / "a.jsonl", {"deep": [value]})
    assert not (tmp_path / "a.jsonl").exists()


def test_a_line_torn_at_any_byte_is_mended_by_the_next_append(tmp_path):
    path = tmp_path / "a.jsonl"
    whole = to_line({"n": 1})
    last = to_line({"n": 2, "text": 'é"}\ud800 {', "list": [{"a": {}}]})
    for cut in range(1, len(last)):
        path.write_bytes(whole + last[:cut])
        torn(path).unlink(missing_ok=True)
        append(path, {"n": 3})
        kept = [entry["n"] for entry in load_trajectories(path)]
        if cut == len(last) - 1:  # all but the newline: the record is there
            assert kept == [1, 2, 3]
            assert not torn(path).exists()
        else:
            assert kept == [1, 3]
            assert torn(path).read_bytes() == last[:cut] + b"\n"


def test_fragments_are_collected_one_a_line(tmp_path):
    path = tmp_path / "a.jsonl"
    for fragment in (b'{"a', b"12", b"\x00\x00\x00"):
        with path.open("ab") as file:
            file.write(fragment)
        append(path, {"ok": True})
    assert torn(path).read_bytes() == b'{"a\n12\n\x00\x00\x00\n'
    assert list(load_trajectories(path)) == [{"ok": True}] * 3


def test_a_torn_tail_longer_than_one_block_is_found_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(to_line({"n": 1}) + b'{"x": "' + b"y" * 300_000)
    append(path, {"n": 2})
    assert [entry["n"] for entry in load_trajectories(path)] == [1, 2]
    assert torn(path).stat().st_size == 300_008


def test_every_acknowledged_line_outlives_a_kill_and_none_is_torn(tmp_path):
    path = tmp_path / "a.jsonl"
    chance = random.Random(7)
    acknowledged = set()
    for round_ in range(8):
        process = writer(path, str(round_), count=10_000, size=chance.choice([10, 1_000_000]))
        assert process.stdout is not None
        acknowledged.add((str(round_), int(process.stdout.readline())))
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        acknowledged |= {(str(round_), int(n)) for n in process.communicate()[0].split()}
    append(path, {"name": "end", "n": 0})
    kept = [(entry["name"], entry["n"]) for entry in load_trajectories(path)]
    assert acknowledged <= set(kept)
    assert len(kept) == len(set(kept))
    assert kept[-1] == ("end", 0)


@pytest.mark.skipif(not shutil.which("strace"), reason="needs the Debian package strace")
def test_a_line_is_on_the_disk_before_it_is_acknowledged(tmp_path):
    trace = ["strace", "-f", "-y", "-qq", "-o", tmp_path / "trace", "-e", "trace=write,fsync"]
    command = [sys.executable, "-c", WRITER, tmp_path / "a.jsonl", "a", "3", "10"]
    subprocess.run([*trace, *command], stdout=subprocess.PIPE, check=True)
    steps = re.findall(r"(write|fsync)\((\d+)<([^>]*)>", (tmp_path / "trace").read_text())
    ours = ["ack" if file == "1" else f"{call} {Path(name).name}" for call, file, name in steps]
    first = ["write a.jsonl", "fsync a.jsonl", f"fsync {tmp_path.name}", "ack"]  # a new file's folder as well
    assert ours == first + ["write a.jsonl", "fsync a.jsonl", "ack"] * 2


def test_two_processes_appending_at_once_lose_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    processes = [writer(path, name, count=150, size=5_000) for name in "ab"]
    assert [process.communicate()[0].count("\n") for process in processes] == [150, 150]
    kept = [(entry["name"], entry["n"]) for entry in load_trajectories(path)]
    assert len(kept) == 300
    for name in "ab":
        assert [n for who, n in kept if who == name] == list(range(150))


def test_a_write_that_fails_part_way_raises_and_leaves_whole_lines_only(tmp_path):
    path = tmp_path / "a.jsonl"
    run = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=True)
    *acknowledged, message = run.stdout.splitlines()
    assert acknowledged == [str(n) for n in range(13)]
    assert message.startswith(f"{path}: File too large")
    assert [entry["n"] for entry in load_trajectories(path)] == list(range(13))
    append(path, {"n": 13})  # the limit was the child's: there is room again
    assert [entry["n"] for entry in load_trajectories(path)] == list(range(14))
    assert not torn(path).exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_raises_and_names_the_file():
    with pytest.raises(NotWritten, match="/dev/full: No space left on device"):
        append("/dev/full", {"n": 1})


def test_a_place_that_cannot_be_written_raises_and_names_the_file(tmp_path):
    with pytest.raises(NotWritten, match=r"missing/a.jsonl: No such file or directory"):
        append(tmp_path / "missing" / "a.jsonl", {"n": 1})
