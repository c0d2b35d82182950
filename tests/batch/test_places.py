import pytest

from stemma.batch.places import cleared_at_once, furnish, places_of
from stemma.batch.prompts import BadPrompt, as_row


def test_a_row_puts_files_and_a_copy_of_its_folder_into_the_place(tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.txt").write_text("from the folder")
    (source / "b.txt").write_text("old")
    place = tmp_path / "places" / "task"
    furnish(place, as_row({"prompt": "p", "cwd": str(source), "files": {"b.txt": "new", "x/y.txt": "more"}}, 0))
    assert (place / "deep" / "a.txt").read_text() == "from the folder"
    assert ((place / "b.txt").read_text(), (place / "x" / "y.txt").read_text()) == ("new", "more")
    (place / "deep" / "a.txt").write_text("changed")
    assert (source / "deep" / "a.txt").read_text() == "from the folder"


def test_a_place_that_a_crash_left_is_taken_as_it_is(tmp_path):
    row = as_row({"prompt": "p", "files": {"a.txt": "first"}}, 0)
    furnish(tmp_path / "task", row)
    (tmp_path / "task" / "a.txt").write_text("worked on")
    furnish(tmp_path / "task", row)
    assert (tmp_path / "task" / "a.txt").read_text() == "worked on"


def test_a_place_that_a_crash_left_half_made_is_made_anew(tmp_path):
    (tmp_path / "task.new").mkdir()
    (tmp_path / "task.new" / "torn.txt").write_text("half")
    furnish(tmp_path / "task", as_row({"prompt": "p", "files": {"a.txt": "whole"}}, 0))
    assert [path.name for path in tmp_path.iterdir()] == ["task"]
    assert [path.name for path in (tmp_path / "task").iterdir()] == ["a.txt"]


def test_a_folder_that_is_not_there_is_told_with_its_row(tmp_path):
    with pytest.raises(BadPrompt, match="row 3: there is no folder"):
        furnish(tmp_path / "task", as_row({"prompt": "p", "cwd": str(tmp_path / "none")}, 2))


def test_each_run_has_places_of_its_own_that_are_found_again(tmp_path, monkeypatch):
    assert places_of(tmp_path / "a") != places_of(tmp_path / "b")
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert places_of(tmp_path / "a") == places_of(tmp_path / "b" / ".." / "a")


def test_a_small_folder_is_cleared_at_once_and_one_that_is_gone_too(tmp_path):
    furnish(tmp_path / "task", as_row({"prompt": "p", "files": {"c.txt": "x"}}, 0))
    assert cleared_at_once(tmp_path / "task")
    assert cleared_at_once(tmp_path / "task")
    assert not (tmp_path / "task").exists()


def test_a_large_folder_is_left_to_a_thread(tmp_path):
    furnish(tmp_path / "deep", as_row({"prompt": "p", "files": {"a/b/c.txt": "x"}}, 0))
    furnish(tmp_path / "wide", as_row({"prompt": "p", "files": {f"{i}.txt": "x" for i in range(40)}}, 0))
    assert not cleared_at_once(tmp_path / "deep")
    assert not cleared_at_once(tmp_path / "wide")
    assert (tmp_path / "deep" / "a" / "b" / "c.txt").exists()
    assert len(list((tmp_path / "wide").iterdir())) == 40
