"""A sound store is 0, a damaged one is 2 with every finding named, and what is no store is 1."""

import json
import sqlite3
from pathlib import Path

import pytest

from cli.conftest import Run


def damage(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(statement)
    db.close()


def test_a_sound_store(run: Run, demo_store: Path):
    code, out, err = run("verify")
    assert (code, err) == (0, "")
    assert out == "stemma.db: checked 4 graphs, 8 lines, 20 messages, 8 calls\nall ids are right\n"
    assert run("verify", str(demo_store)).code == 0


def test_an_altered_body_is_named_and_exits_2(run: Run, demo_store: Path):
    damage(demo_store, "UPDATE message SET body = replace(CAST(body AS TEXT), 'careful', 'careless')")
    code, out, _ = run("verify")
    assert code == 2
    assert "altered  message " in out
    assert out.splitlines()[-1].endswith("altered")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE graph SET metadata = 'not json'",
        "UPDATE message SET body = '{'",
        "DELETE FROM message WHERE id = 2",
        "DELETE FROM line WHERE id = 1",
        "UPDATE line SET added = x'00'",
        "UPDATE call SET body = '['",
        "UPDATE version SET reason = x'ff'",
    ],
)
def test_whatever_is_damaged_there_is_no_traceback(run: Run, demo_store: Path, statement: str):
    damage(demo_store, statement)
    assert run("verify").code == 2
    assert json.loads(run("verify", "--json").out)["findings"]
    for arguments in (
        ["log"],
        ["log", "demo"],
        ["log", "demo", "--graph"],
        ["show", "demo"],
        ["diff", "demo@0", "demo"],
    ):
        code, _, err = run(*arguments)
        assert code in (0, 1)
        assert err.count("\n") == code


def test_findings_as_json(run: Run, demo_store: Path):
    assert json.loads(run("verify", "--json").out) == {
        "store": "stemma.db",
        "sound": True,
        "checked": {"graphs": 4, "lines": 8, "messages": 20, "calls": 8},
        "findings": [],
    }
    damage(demo_store, "UPDATE run SET name = 'other'")
    code, out, _ = run("verify", "--json")
    found = json.loads(out)
    assert (code, found["sound"]) == (2, False)
    assert found["findings"][0].keys() == {"kind", "subject", "detail"}


def test_what_is_no_store_exits_1(run: Run, tmp_path: Path, demo_store: Path):
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be looked at " * 20)
    (tmp_path / "nothing.db").write_bytes(b"")
    with sqlite3.connect(tmp_path / "foreign.db") as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    damage(demo_store, "PRAGMA user_version = 99")
    for name in ("missing.db", "text.db", "nothing.db", "foreign.db", "stemma.db"):
        code, out, err = run("verify", name)
        assert (code, out) == (1, "")
        assert err.startswith("stemma: ")
        assert err.count("\n") == 1
    assert "upgrade" in run("verify", "stemma.db").err
    assert not (tmp_path / "missing.db").exists()


def test_an_export_of_text_is_told_to_be_no_more_than_that(run, demo_store, tmp_path):
    assert run("export", str(demo_store), "--for", "openai", "-o", str(tmp_path / "text")).code == 0
    told = run("verify", str(tmp_path / "text"))
    assert told.code == 0
    assert "L0 text" in told.out
    assert json.loads(run("verify", str(tmp_path / "text"), "--json").out)["level"] == "L0"
    data = tmp_path / "text" / "train.jsonl"
    data.write_bytes(data.read_bytes() * 2)
    assert run("verify", str(data)).code == 2
