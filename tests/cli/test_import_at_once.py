"""Large imports, and two at once: the store is as after one import by one process."""

import gzip
import json

import pytest

from stemma import open_store
from store.child import finish, python, start

IMPORT = "from stemma.cli.main import run; run()"


def entry(number: int, size: int) -> dict[str, object]:
    messages = [{"role": "user", "content": f"{number} " + "x" * size}, {"role": "assistant", "content": f"A{number}"}]
    return {"messages": messages, "model": "small", "level": number % 3}


def lines(count: int, size: int) -> bytes:
    return b"".join(json.dumps(entry(number, size)).encode() + b"\n" for number in range(count))


def contents(path):
    with open_store(path, create=False) as store:
        assert store.verify() == []
        return {info.name: (info.run, info.tip, info.calls, info.metadata) for info in store.graphs()}


def test_two_imports_of_one_file_at_once_are_as_one(run, tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_bytes(lines(600, 500) + lines(5, 500))  # a few lines twice
    both = [start(python(IMPORT, "import", file, "--store", tmp_path / "both.db", "--json")) for _ in range(2)]
    told = [json.loads(finish(process)) for process in both]
    assert [(one["lines"], one["unreadable"]) for one in told] == [(605, []), (605, [])]
    run("import", str(file), "--store", str(tmp_path / "one.db"))
    assert contents(tmp_path / "both.db") == contents(tmp_path / "one.db")
    assert len(contents(tmp_path / "one.db")) == 605


def test_a_large_file_is_kept_whole_and_in_order(run, tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_bytes(lines(130, 100_000) + b"no record\n" + lines(2, 100_000))
    told = json.loads(run("import", str(file), "--store", str(tmp_path / "s.db"), "--json").out)
    assert (told["lines"], told["added"]) == (133, 132)
    assert [problem.split(": ")[0] for problem in told["unreadable"]] == [f"{file}:131"]
    kept = contents(tmp_path / "s.db")
    by_line = {about["stemma"]["imported"]["line"]: about for _, _, _, about in kept.values()}
    assert sorted(by_line) == [*range(1, 131), 132, 133]
    assert all(by_line[n]["stemma"]["imported"]["raw"] == json.dumps(entry(n - 1, 100_000)) for n in range(1, 131))


@pytest.mark.parametrize("count", [3, 130])
def test_all_lines_before_the_damage_of_a_compressed_file_are_kept(run, tmp_path, count):
    file = tmp_path / "data.jsonl.gz"
    whole = lines(count, 100_000)
    file.write_bytes(gzip.compress(whole, compresslevel=1) + gzip.compress(lines(1, 10), compresslevel=1)[:-9])
    told = run("import", str(file), "--store", str(tmp_path / "s.db"))
    assert told.code == 1
    assert "cut off or damaged" in told.err
    assert len(contents(tmp_path / "s.db")) >= count
