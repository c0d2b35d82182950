"""Working folders are private, found again after a crash, and never reached through what others have put there."""

import os
import stat
import tempfile

import pytest

from stemma.batch.places import REMEMBERED, NotOurs, Places
from stemma.batch.prompts import BadPrompt, as_row
from stemma.tools.workspace import NOBODY

ROW = as_row({"prompt": "p", "files": {"a.txt": "first"}}, 0)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The system's temporary folder, of this test alone."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def places(run, temporary):
    found = Places(run)
    yield found
    found.close()


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


# ── what is put there ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_puts_files_and_a_copy_of_its_folder_into_the_place(tmp_path, places):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.txt").write_text("from the folder")
    (source / "b.txt").write_text("old")
    row = as_row({"prompt": "p", "cwd": str(source), "files": {"b.txt": "new", "./x//y.txt": "more"}}, 0)
    places.furnish("task", row)
    place = places.path("task")
    assert (place / "deep" / "a.txt").read_text() == "from the folder"
    assert ((place / "b.txt").read_text(), (place / "x" / "y.txt").read_text()) == ("new", "more")
    (place / "deep" / "a.txt").write_text("changed")
    assert (source / "deep" / "a.txt").read_text() == "from the folder"


def test_a_row_may_put_a_repository_there(places):
    places.furnish("task", as_row({"prompt": "p", "files": {".git/hooks/pre-commit": "#!/bin/sh"}}, 0))
    assert (places.path("task") / ".git" / "hooks" / "pre-commit").read_text() == "#!/bin/sh"


def test_a_place_that_a_crash_left_is_taken_as_it_is(places):
    places.furnish("task", ROW)
    (places.path("task") / "a.txt").write_text("worked on")
    places.furnish("task", ROW)
    assert (places.path("task") / "a.txt").read_text() == "worked on"


def test_a_place_that_a_crash_left_half_made_is_made_anew(places):
    places.path("task.new").mkdir()
    (places.path("task.new") / "torn.txt").write_text("half")
    places.furnish("task", ROW)
    assert [path.name for path in places.root.iterdir()] == ["task"]
    assert [path.name for path in places.path("task").iterdir()] == ["a.txt"]


def test_a_folder_that_is_not_there_is_told_with_its_row(tmp_path, places):
    with pytest.raises(BadPrompt, match="row 3: there is no folder"):
        places.furnish("task", as_row({"prompt": "p", "cwd": str(tmp_path / "none")}, 2))


def test_files_are_not_written_through_a_link_in_the_copied_folder(tmp_path, places):
    source, private = tmp_path / "source", tmp_path / "private"
    source.mkdir()
    private.mkdir()
    (source / "link").symlink_to(private)
    with pytest.raises(BadPrompt, match=r"row 1: `files` names 'link/x\.txt'"):
        places.furnish("task", as_row({"prompt": "p", "cwd": str(source), "files": {"link/x.txt": "x"}}, 0))
    assert list(private.iterdir()) == []


def test_files_of_a_task_that_is_to_go_on_are_kept_with_the_run_and_come_back(run, places):
    places.furnish("task", ROW)
    (places.path("task") / "a.txt").write_text("worked on")
    os.mkfifo(places.path("task") / "pipe")
    places.keep("task")
    assert list(places.root.iterdir()) == []
    assert (mode(run / "unfinished"), mode(run / "unfinished" / "task")) == (0o700, 0o700)
    places.furnish("task", ROW)
    assert (places.path("task") / "a.txt").read_text() == "worked on"
    places.clear("task")


def test_a_folder_is_kept_with_the_run_also_on_another_file_system(run, monkeypatch, places):
    rename = os.rename

    def other_device(source, target, **more):
        if str(source).startswith(str(places.root)) and not str(target).startswith(str(places.root)):
            raise OSError(18, "Invalid cross-device link")
        rename(source, target, **more)

    places.furnish("task", ROW)
    os.mkfifo(places.path("task") / "pipe")
    (places.path("task") / "link").symlink_to("/etc")
    monkeypatch.setattr(os, "rename", other_device)
    places.keep("task")
    assert list(places.root.iterdir()) == []
    kept = run / "unfinished" / "task"
    assert sorted(os.listdir(kept)) == ["a.txt", "link", "pipe"]
    assert os.readlink(kept / "link") == "/etc"


# ── whose it is ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_folders_are_private_whatever_is_copied_into_them(tmp_path, temporary, places):
    source = tmp_path / "source"
    source.mkdir(mode=0o755)
    places.furnish("plain", ROW)
    places.furnish("copied", as_row({"prompt": "p", "cwd": str(source)}, 0))
    assert [mode(path) for path in (places.root, *places.root.iterdir())] == [0o700] * 3
    owner = NOBODY if os.geteuid() == 0 else os.geteuid()
    assert {path.stat().st_uid for path in (places.root, *places.root.rglob("*"))} == {owner}


def test_no_name_can_be_known_beforehand(tmp_path, temporary):
    names = set()
    for _ in range(3):
        run = tmp_path / "same"
        run.mkdir(exist_ok=True)
        places = Places(run)
        names.add(places.root.name)
        places.close()
    assert len(names) == 3
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_run_is_found_again_after_a_crash_and_shared_by_its_processes(run, temporary):
    crashed = Places(run)
    crashed.furnish("task", ROW)
    os.close(crashed._folder)
    one, two = Places(run), Places(run)
    assert one.root == two.root == crashed.root
    one.clear("task")
    one.close()
    assert two.root.is_dir(), "the other process still works there"
    two.close()
    assert list(temporary.iterdir()) == []
    assert not (run / REMEMBERED).exists()


def planted(kind, temporary, target):
    """What somebody else has put in the place of a run's folder."""
    place = temporary / "stemma-run-planted"
    if kind == "link":
        place.symlink_to(target)
    else:
        place.mkdir(mode=0o700)
        os.chmod(place, 0o777 if kind == "open" else 0o700)
        if kind == "theirs":
            os.chown(place, 12345, 12345)
    return place


@pytest.mark.parametrize("kind", ["link", "open", "theirs"])
def test_a_folder_that_is_not_ours_alone_is_never_taken(tmp_path, run, temporary, kind):
    if kind == "theirs" and os.geteuid() != 0:
        pytest.skip("only root can give a folder to somebody else")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "task").mkdir()
    (private / "task" / "secret.txt").write_text("mine")
    place = planted(kind, temporary, private)
    (run / REMEMBERED).write_text(str(place))
    places = Places(run)
    assert places.root != place
    places.furnish("task", ROW)
    places.clear("task")
    places.close()
    assert (private / "task" / "secret.txt").read_text() == "mine"
    assert os.path.lexists(place)


def test_a_link_in_the_place_of_a_task_is_refused_and_removed_without_following_it(tmp_path, places):
    private = tmp_path / "private"
    private.mkdir()
    (private / "secret.txt").write_text("mine")
    places.path("task").symlink_to(private)
    with pytest.raises(NotOurs, match="not a folder of ours"):
        places.furnish("task", ROW)
    assert not places.cleared_at_once("task")
    places.clear("task")
    assert not os.path.lexists(places.path("task"))
    assert (private / "secret.txt").read_text() == "mine"


def test_links_in_a_folder_are_removed_and_what_they_lead_to_is_not(tmp_path, places):
    private = tmp_path / "private"
    private.mkdir()
    (private / "secret.txt").write_text("mine")
    for task, where in (("small", ""), ("deep", "inner")):
        places.furnish(task, ROW)
        folder = places.path(task) / where
        folder.mkdir(exist_ok=True)
        (folder / "folder").symlink_to(private)
        (folder / "file").symlink_to(private / "secret.txt")
        places.clear(task)
        assert not places.path(task).exists()
    assert (private / "secret.txt").read_text() == "mine"


# ── removing ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_small_folder_is_cleared_at_once_and_one_that_is_gone_too(places):
    places.furnish("task", ROW)
    assert places.cleared_at_once("task")
    assert places.cleared_at_once("task")
    assert not places.path("task").exists()


def test_a_large_folder_is_left_to_a_thread(places):
    places.furnish("deep", as_row({"prompt": "p", "files": {"a/b/c.txt": "x"}}, 0))
    places.furnish("wide", as_row({"prompt": "p", "files": {f"{i}.txt": "x" for i in range(40)}}, 0))
    assert not places.cleared_at_once("deep")
    assert not places.cleared_at_once("wide")
    assert (places.path("deep") / "a" / "b" / "c.txt").exists()
    assert len(list(places.path("wide").iterdir())) == 40
    places.clear("deep")
    places.clear("wide")
    assert list(places.root.iterdir()) == []


def test_a_folder_that_a_command_has_closed_to_us_is_removed_all_the_same(places):
    places.furnish("task", as_row({"prompt": "p", "files": {"a/b/c.txt": "x"}}, 0))
    os.chmod(places.path("task") / "a" / "b", 0)
    os.chmod(places.path("task") / "a", 0)
    places.clear("task")
    assert list(places.root.iterdir()) == []
