"""Stores are taken into one; doing it twice changes nothing; a source that is missing leaves nothing behind."""

import json
from pathlib import Path

import pytest

from cli.conftest import Run
from cli.conversations import demo, say
from stemma import MessageGraph, open_store


@pytest.fixture
def others(tmp_path: Path) -> list[str]:
    with open_store(tmp_path / "a.db") as store:
        store.save(demo(), "demo")
        store.save(MessageGraph([say("user", "only in a")]), "mine")
    with open_store(tmp_path / "b.db") as store:
        store.save(MessageGraph([say("user", "another demo")]), "demo")
    return ["a.db", "b.db"]


def test_stores_are_merged_and_the_report_says_how(run: Run, others: list[str]):
    code, out, err = run("merge", "all.db", *others)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == ["a.db → all.db: 2 added, 0 already there, 0 renamed", "  + demo", "  + mine"]
    assert lines[3] == "b.db → all.db: 1 added, 0 already there, 1 renamed"
    assert lines[4].startswith("  + demo~")
    assert lines[4].endswith("(was demo, a name that holds another conversation)")
    assert run("verify", "all.db").code == 0


def test_merging_twice_changes_nothing(run: Run, others: list[str]):
    first = json.loads(run("merge", "all.db", *others, "--json").out)
    assert first["target"] == "all.db"
    assert first["sources"][0] == {
        "source": "a.db",
        "added": ["demo", "mine"],
        "same": [],
        "renamed": {},
        "updated": [],
        "conflicts": [],
    }
    assert list(first["sources"][1]["renamed"]) == ["demo"]
    second = json.loads(run("merge", "all.db", *others, "--json").out)
    assert [source["added"] for source in second["sources"]] == [[], []]
    assert [len(source["same"]) for source in second["sources"]] == [2, 1]
    assert len(json.loads(run("log", "-s", "all.db", "--json").out)["graphs"]) == 3


def test_a_missing_source_leaves_no_new_target(run: Run, tmp_path: Path, others: list[str]):
    code, _, err = run("merge", "all.db", "a.db", "missing.db")
    assert code == 1
    assert "missing.db" in err
    assert not (tmp_path / "all.db").exists()


def test_metadata_that_differs_is_listed_and_kept_until_somebody_decides(run: Run, tmp_path: Path):
    for path, about in (("one.db", {"reward": 0.0, "level": "hard"}), ("two.db", {"reward": 1.0, "judge": "j"})):
        with open_store(tmp_path / path) as store:
            store.save(MessageGraph([say("user", "hi")]), "c", metadata=about)

    def kept() -> dict[str, object]:
        with open_store(tmp_path / "one.db") as store:
            return dict(store.metadata("c"))

    code, out, _ = run("merge", "one.db", "two.db")
    assert code == 1
    assert "conflict c: reward is 0.0 here and 1.0 there" in out
    assert kept() == {"reward": 0.0, "level": "hard", "judge": "j"}
    assert run("merge", "one.db", "two.db", "--prefer", "target").code == 0
    assert kept()["reward"] == 0.0
    assert run("merge", "one.db", "two.db", "--prefer", "source").code == 0
    assert kept() == {"reward": 1.0, "level": "hard", "judge": "j"}
    assert run("merge", "one.db", "two.db").code == 0
    assert run("verify", "one.db").code == 0
