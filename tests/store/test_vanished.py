"""A store whose file is removed or replaced while it is open is an error for whoever writes or reads, never success."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from stemma import MessageGraph, open_store
from stemma.errors import StoreError, StoreVanished


def graph(text="hello"):
    return MessageGraph([{"role": "user", "content": text}])


def remove(path):
    path.unlink()


def remove_all(path):
    for file in path.parent.glob("s.db*"):
        file.unlink()


def remove_the_log(path):
    path.with_name("s.db-wal").unlink()


def put_a_copy_there(path):
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


def put_an_empty_file_there(path):
    path.unlink()
    path.touch()


def remove_the_folder(path):
    shutil.rmtree(path.parent)


WAYS = [remove, remove_all, remove_the_log, put_a_copy_there, put_an_empty_file_there, remove_the_folder]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder/s.db"


@pytest.mark.parametrize("vanish", WAYS)
def test_a_save_after_that_is_an_error(path, vanish):
    store = open_store(path)
    store.save(graph(), "first")
    vanish(path)
    with pytest.raises(StoreVanished, match=r"s\.db"):
        store.save(graph(), "second")
    with pytest.raises(StoreVanished):
        store.write([store.prepare(graph(), "third")])
    with pytest.raises(StoreVanished):
        store.close()


@pytest.mark.parametrize("vanish", WAYS)
def test_what_vanishes_after_the_last_save_is_an_error_when_the_store_is_closed(path, vanish):
    store = open_store(path)
    store.save(graph(), "first")
    vanish(path)
    with pytest.raises(StoreVanished), store:
        pass


@pytest.mark.parametrize("vanish", WAYS)
def test_closing_closes_every_connection_also_when_saves_have_failed(path, vanish):
    store = open_store(path)
    store.save(graph(), "first")
    store.write([store.prepare(graph(), "second")])
    vanish(path)
    with pytest.raises(StoreVanished) as of_the_thread:
        store.save(graph(), "third")
    with pytest.raises(StoreVanished) as of_the_caller:
        store.write([store.prepare(graph(), "fourth")])
    with pytest.raises(StoreVanished):
        store.close()
    assert of_the_thread.value  # an error that is kept keeps the frames it came through, and what they hold
    assert of_the_caller.value
    assert open_below(path.parent) == []


def open_below(folder):
    """The files below a folder that this process has open."""
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    found = [os.readlink(link) for link in links if os.path.islink(link)]
    return [name for name in found if name.startswith(f"{folder}/")]


def test_an_error_in_the_block_is_not_hidden_by_a_store_that_vanished(path):
    store = open_store(path)
    store.save(graph(), "first")
    remove_all(path)
    with pytest.raises(KeyError, match="mine"), store:
        raise KeyError("mine")


@pytest.mark.parametrize("vanish", [remove, remove_all, put_a_copy_there, put_an_empty_file_there])
def test_reading_after_that_is_an_error_in_this_thread_and_in_others_and_makes_no_file(path, vanish):
    store = open_store(path)
    store.save(graph(), "first")
    assert store.names() == ["first"]
    vanish(path)
    there = path.exists()
    with pytest.raises(StoreVanished):
        store.load("first")
    with ThreadPoolExecutor(1) as other, pytest.raises(StoreVanished):
        other.submit(store.names).result()
    assert path.exists() == there
    with pytest.raises(StoreError):
        store.close()


def test_who_only_read_may_close_a_store_that_is_gone(path):
    with open_store(path) as store:
        store.save(graph(), "first")
    with open_store(path) as store:
        assert store.names() == ["first"]
        remove_all(path)


def test_a_store_that_another_process_closes_meanwhile_has_not_vanished(path):
    with open_store(path) as first:
        first.save(graph(), "first")
        with open_store(path) as second:
            second.save(graph(), "second")
        first.save(graph(), "third")
        assert first.names() == ["first", "second", "third"]


def test_a_store_reached_by_a_link_has_not_vanished(path):
    link = path.with_name("link.db")
    link.symlink_to(path.name)
    with open_store(link) as store:
        store.save(graph(), "first")
        store.save(graph(), "second")
        assert store.names() == ["first", "second"]
