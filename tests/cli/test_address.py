"""Every way to name a line or a message, names that look like addresses, and ids that fit several."""

import pytest

from cli.conversations import demo, say
from stemma import MessageGraph
from stemma.cli.address import Place, address, resolve
from stemma.errors import Ambiguous, NotFound
from stemma.store import MemoryStore

ODD_NAMES = ["plain", "plain:1", "plain@0", "plain/0", "a/0@1:2", "abc", "0"]


@pytest.fixture
def store() -> MemoryStore:
    kept = MemoryStore()
    kept.save(demo(), "demo")
    for name in ODD_NAMES:
        kept.save(MessageGraph([say("user", name)]), name)
    return kept


def test_a_name_is_its_current_line_and_last_message(store: MemoryStore):
    place = resolve(store, "demo")
    assert (place.version, place.index, len(place.line)) == (None, 5, 6)


@pytest.mark.parametrize(("text", "index"), [("demo:0", 0), ("demo:-1", 5), ("demo:3", 3)])
def test_a_message_is_named_by_its_index(store: MemoryStore, text: str, index: int):
    assert resolve(store, text).index == index


def test_versions_and_subagents_are_named_by_their_numbers(store: MemoryStore):
    graph = store.load("demo")
    assert resolve(store, "demo@2").line == graph.versions[2].line()
    checker = resolve(store, "demo/0/0:1")
    assert checker.line[checker.index].get("content") == "Yes."
    assert checker.path == (0, 0)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_comes_before_all_other_readings(store: MemoryStore, name: str):
    place = resolve(store, name)
    assert place.line[0].get("content") == name
    assert resolve(store, f"{name}:0") == place


def test_every_address_that_is_printed_leads_back(store: MemoryStore):
    for name in ("demo", "demo/0", "demo/0/0", "demo@1", "a/0@1:2"):
        place = resolve(store, name)
        for index in range(len(place.line)):
            there = resolve(store, place.address(index))
            assert there.line[there.index] == place.line[index]


def test_an_id_is_found_by_any_prefix_that_fits_no_other(store: MemoryStore):
    place = resolve(store, "demo@1:2")
    node = place.nodes()[2].hex()
    for digits in (12, 20, 64):
        found = resolve(store, node[:digits].upper())
        assert found.nodes()[found.index].hex() == node
    message = place.line[2].id.hex()
    found = resolve(store, message)
    assert found.line[found.index].id.hex() == message


def test_a_prefix_that_fits_several_names_them_all(store: MemoryStore):
    first = next(digit for digit in "123456789abcdef" if 1 < len(store.find(digit)) <= 8)
    with pytest.raises(Ambiguous) as problem:
        resolve(store, first)
    for found in store.find(first):
        assert found.id[:10] in str(problem.value)
        assert repr(address(found.graph, found.path, found.version, found.index)) in str(problem.value)


@pytest.mark.parametrize(
    "text",
    ["", "demo@3", "demo:6", "demo:-7", "demo/1", "demo/0/1", "ffffffffffff", "\ud800", "demo\n", "demo@-1", "@0"],
)
def test_what_is_not_there_is_not_found(store: MemoryStore, text: str):
    with pytest.raises(NotFound):
        resolve(store, text)


def test_the_other_lines_through_a_node_are_known(store: MemoryStore):
    assert resolve(store, "demo:0").elsewhere() == ["demo@2:0", "demo@1:0", "demo@0:0"]
    assert resolve(store, "demo@0:3").elsewhere() == ["demo@1:3"]
    assert resolve(store, "demo").elsewhere() == []


def test_an_empty_graph_is_a_line_without_messages(store: MemoryStore):
    store.save(MessageGraph(), "empty")
    place: Place = resolve(store, "empty")
    assert (place.line, place.index) == ([], -1)


def test_a_digit_or_two_name_no_message_even_if_they_fit_only_one():
    store = MemoryStore()
    store.save(MessageGraph([{"role": "user", "content": "hi"}]), "talk")
    (one,) = [found for found in store.find(resolve(store, "talk").nodes()[0].hex()) if found.kind == "node"]
    for digits in (1, 3):
        with pytest.raises(NotFound):
            resolve(store, one.id[:digits])
    assert resolve(store, one.id[:4]).index == 0
